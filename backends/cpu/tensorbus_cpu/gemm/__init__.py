"""Matrix products: BLAS, MKL, packed panels for AMX and AVX-512."""
