// Members of `Transforms` on a device whose transforms are one call: nothing is left to the product of
// digits and a key. The file that defines its transforms includes this, and no other.
#pragma once

#include <vector>

#include "ckks/ring/switch_kernels.hpp"
#include "ckks/ring/transforms.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {

void Transforms::begin_forward(const Limbs& limbs) const { forward(limbs); }

void Transforms::end_backward(const Limbs& limbs) const { backward(limbs); }

void Transforms::key_products(const std::vector<InnerProduct>& products) const {
    for (const InnerProduct& product : products) {
        launch(product.places(), product, "products with a key");
    }
}

void Transforms::key_products(const InnerProducts& sum) const {
    launch(sum.places(), sum, "products with keys");
}

}  // namespace atlasc::ckks
