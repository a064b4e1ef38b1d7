"""The routes of models that give vectors: embeddings, scores, labels."""
