"""What layers are to kernels and microkernels, and how they are cut up: pure values, without C."""
