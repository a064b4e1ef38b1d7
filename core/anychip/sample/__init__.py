"""Sampling on the device: logits go in, token ids come out, and only changes of parameters travel.

Order of processing, as in vLLM: allowed_token_ids, bad_words, min_tokens, logit_bias, penalties, then temperature,
min_p, top_k, top_p. Log-probabilities are of the model's own logits, before all of it.
"""
