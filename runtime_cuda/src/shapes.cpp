#include "shapes.hpp"

#include "atlasc/error.hpp"

namespace atlasc {

void require_shapes(const Context& context, const Linear& arrays, const Packed& x,
                    const Layout& layout) {
    using Shape = std::vector<std::size_t>;
    const auto shape = [&](const std::string& name) { return context.weights.shape(name); };
    const auto fits = [](std::size_t features, const Layout& one) {
        return features > 0 && features <= one.extent('g') * one.extent('d');
    };
    const Shape weight = shape(arrays.weight);
    bool good = weight.size() == 2 && fits(weight[0], layout) && fits(weight[1], x.layout) &&
                x.parts.size() == x.layout.ciphertexts() &&
                (arrays.bias.empty() || shape(arrays.bias) == Shape{weight[0]});
    if (good && !arrays.cos.empty()) {
        const std::size_t width = layout.extent('d');
        const Shape table = {layout.field('t') == nullptr ? shape(arrays.cos).at(0)
                                                          : layout.extent('t'),
                             width};
        good = width % 2 == 0 && weight[0] % width == 0 && count_of(table) > 0 &&
               shape(arrays.cos) == table && shape(arrays.sin) == table;
    }
    if (!good) {
        throw Error("the arrays of a linear layer do not fit its layouts", arrays.weight);
    }
}

}  // namespace atlasc
