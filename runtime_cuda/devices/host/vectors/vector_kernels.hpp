// Kernels that compute several numbers at once, for primes below 2^50.
//
// Their loops are written once, in ntt_kernels.hpp and lanes_kernels.hpp, and compiled with the
// arithmetic of ifma.hpp and of avx2.hpp.
#pragma once

#include "devices/host/vectors/lanes.hpp"
#include "devices/host/vectors/ntt.hpp"

namespace atlasc::ckks {

/// Each kernel, and a function of its type. One list: the table and what it is filled with follow from
/// it, so that no kernel can stand in another one's place.
#define ATLASC_VECTOR_KERNELS(KERNEL)                  \
    KERNEL(forward, forward_portable)                  \
    KERNEL(backward, backward_portable)                \
    KERNEL(add, lanes::add)                            \
    KERNEL(subtract, lanes::subtract)                  \
    KERNEL(multiply, lanes::multiply)                  \
    KERNEL(plus_number, lanes::plus_number)            \
    KERNEL(add_product, lanes::add_product)            \
    KERNEL(divide, lanes::divide)                      \
    KERNEL(lift, lanes::lift)                          \
    KERNEL(inner_product, lanes::inner_product)        \
    KERNEL(permute, lanes::permute)                    \
    KERNEL(sum_of_products, lanes::sum_of_products)    \
    KERNEL(matrix_product, lanes::matrix_product)      \
    KERNEL(scale, lanes::scale)                        \
    KERNEL(combine, lanes::combine)                    \
    KERNEL(residues, lanes::residues)                  \
    KERNEL(chacha20, lanes::chacha20)

struct VectorKernels {
#define ATLASC_MEMBER(name, of_type) decltype(&of_type) name;
    ATLASC_VECTOR_KERNELS(ATLASC_MEMBER)
#undef ATLASC_MEMBER
};

namespace ifma {
extern const VectorKernels kernels;
}
namespace avx2 {
extern const VectorKernels kernels;
}

/// Those of cpu(). Where it is portable nobody calls them.
inline const VectorKernels& vector_kernels() {
#ifdef ATLASC_X86
    return cpu() == Cpu::ifma ? ifma::kernels : avx2::kernels;
#else
    static const VectorKernels none{};
    return none;
#endif
}

}  // namespace atlasc::ckks
