"""The CPU platform's own kernels, written in C++ against torch's stable ABI; the sources lie in `csrc`."""
