// Floating-point arithmetic exactly as written: kernels compute exact integers with doubles, and
// files are checked for NaN. A compiler that may reorder sums, or assume that there is no infinity,
// breaks both. The CMake files revoke such permission (-fno-fast-math). Nor may it make one operation
// of a product and a sum (-ffp-contract=off), as GCC does wherever the processor has it: on aarch64
// always, on x86-64 not in a build for all processors. So both round alike.
#pragma once

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "atlasc computes wrong numbers under -ffast-math and flags like it: add -fno-fast-math"
#endif
