"""Several ranks as one: the default communicator."""
