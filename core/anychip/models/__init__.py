"""Model families, one file each, named after the Hugging Face `model_type`."""
