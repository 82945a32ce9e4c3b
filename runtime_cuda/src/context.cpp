#include "atlasc/context.hpp"

#include "atlasc/error.hpp"

namespace atlasc {

Ciphertext Context::total(const Ciphertexts& terms) const {
    Ciphertext sum = terms.at(0);
    for (std::size_t at = 1; at < terms.size(); ++at) {
        sum = engine.add(sum, terms[at]);
    }
    return sum;
}

Ciphertext Context::double_and_add(Ciphertext x, std::size_t stride, int bits) const {
    for (int bit = 0; bit < bits; ++bit) {
        x = engine.add(x, rotate(x, static_cast<long>(stride << bit)));
    }
    return x;
}

Tensor Constant::array(const Context& context) const {
    Tensor tensor = name_.empty() ? Tensor{{numbers_.size()}, numbers_}
                                  : context.weights.tensor(name_);
    if (tensor.values.empty()) {
        throw Error("a constant is empty", name_);
    }
    if (tensor.shape.empty()) {
        tensor.shape = {1};
    }
    return tensor;
}

Vector first_rows(const Layout& layout) {
    const Field* rest = layout.field(unused);
    const std::size_t tokens = rest == nullptr ? 1 : std::size_t{1} << rest->bits;
    Vector rows(layout.slots(), 0.0);
    for (std::size_t slot = 0; slot < rows.size(); slot += tokens) {
        rows[slot] = 1.0;
    }
    return rows;
}

Tensor blocked(const Tensor& tensor, const Layout& layout) {
    const std::size_t blocks = layout.extent('g');
    const std::size_t width = layout.extent('d');
    const std::size_t features = tensor.shape.empty() ? 0 : tensor.shape.back();
    if (features == 0 || features > blocks * width) {
        throw Error("a constant has no features, or more than its layout");
    }
    Tensor result{tensor.shape, {}};
    result.shape.back() = blocks;
    result.shape.push_back(width);
    result.values.assign(count_of(result.shape), 0.0);
    for (std::size_t at = 0; at < tensor.values.size(); ++at) {
        result.values[at / features * (blocks * width) + at % features] = tensor.values[at];
    }
    return result;
}

}  // namespace atlasc
