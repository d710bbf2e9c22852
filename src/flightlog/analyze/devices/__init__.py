"""What happened to device memory: by session, phase and rank, leaks and out of memory."""
