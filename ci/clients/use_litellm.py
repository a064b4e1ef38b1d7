"""litellm against a server of anychip: `python use_litellm.py BASE_URL`."""

from __future__ import annotations

import sys

import litellm

QUESTION = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "What is the capital of France?"}]


def main(base: str) -> None:
    """A chat, its stream, a completion, and the two other protocols that litellm speaks."""
    openai = {"api_base": f"{base}/v1", "api_key": "none", "temperature": 0}
    answer = litellm.completion("openai/demo", QUESTION, max_tokens=20, **openai)
    text = answer.choices[0].message.content
    assert "Paris" in text, text
    chunks = litellm.completion("openai/demo", QUESTION, max_tokens=20, stream=True, **openai)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    completed = litellm.text_completion(
        model="text-completion-openai/demo", prompt="The capital of France is", max_tokens=4, **openai
    )
    assert "Paris" in completed.choices[0].text
    response = litellm.responses(
        input="What is the capital of France?", model="openai/demo", max_output_tokens=20, **openai
    )
    assert response.output[0].content[0].text
    anthropic = litellm.completion(
        "anthropic/demo", QUESTION, max_tokens=20, api_base=base, api_key="none", temperature=0
    )
    assert anthropic.choices[0].message.content == text


main(sys.argv[1])
