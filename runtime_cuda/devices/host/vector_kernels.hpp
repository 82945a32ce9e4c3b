// Kernels that compute several numbers at once, for primes below 2^50.
//
// Their loops are written once, in ntt_kernels.hpp and lanes_kernels.hpp, and compiled with the
// arithmetic of ifma.hpp and of avx2.hpp.
#pragma once

#include "devices/host/lanes.hpp"
#include "devices/host/ntt.hpp"

namespace atlasc::ckks {

struct VectorKernels {
    decltype(&forward_portable) forward;
    decltype(&backward_portable) backward;
    decltype(&lanes::add) add;
    decltype(&lanes::subtract) subtract;
    decltype(&lanes::multiply) multiply;
    decltype(&lanes::times_number) times_number;
    decltype(&lanes::add_product) add_product;
    decltype(&lanes::divide) divide;
    decltype(&lanes::lift) lift;
    decltype(&lanes::inner_product) inner_product;
    decltype(&lanes::permute) permute;
    decltype(&lanes::sum_of_products) sum_of_products;
    decltype(&lanes::scale) scale;
    decltype(&lanes::combine) combine;
    decltype(&lanes::residues) residues;
    decltype(&lanes::chacha20) chacha20;
};

namespace ifma {
extern const VectorKernels kernels;
}
namespace avx2 {
extern const VectorKernels kernels;
}

/// Those of cpu(), which is not portable.
inline const VectorKernels& vector_kernels() {
    return cpu() == Cpu::ifma ? ifma::kernels : avx2::kernels;
}

}  // namespace atlasc::ckks
