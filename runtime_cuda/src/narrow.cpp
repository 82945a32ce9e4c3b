// Kernels that bring replicated values of several ciphertexts into one, and back.
#include "atlasc/error.hpp"
#include "atlasc/kernels.hpp"

namespace atlasc {
namespace {

/// Slots of one place: those whose top bits have the same value.
std::size_t place_size(const Layout& layout) { return layout.slots() >> layout.outer_bits(); }

/// Place of every ciphertext in the one that holds them all.
std::vector<std::size_t> places(const Layout& layout) {
    const std::optional<Layout> gathered = layout.gathered();
    if (!gathered) {
        throw Error("the copies in a layout have no room for its ciphertexts");
    }
    std::vector<std::size_t> result;
    for (const Index& index : layout.ciphertext_index()) {
        result.push_back(gathered->place(index).slot / place_size(layout));
    }
    return result;
}

Vector mask_of(const Layout& layout, std::size_t place) {
    Vector mask(layout.slots(), 0.0);
    const std::size_t size = place_size(layout);
    for (std::size_t slot = place * size; slot < (place + 1) * size; ++slot) {
        mask[slot] = 1.0;
    }
    return mask;
}

}  // namespace

Packed gather(Context& context, Packed x) {
    context.begin("gather");
    // Places without a ciphertext hold the first one, so that a polynomial stays in its range there.
    const std::vector<std::size_t> where = places(x.layout);
    std::vector<Vector> masks = {Vector(x.layout.slots(), 1.0)};
    for (std::size_t at = 1; at < where.size(); ++at) {
        masks.push_back(mask_of(x.layout, where[at]));
        for (std::size_t slot = 0; slot < masks[0].size(); ++slot) {
            masks[0][slot] -= masks[at][slot];
        }
    }
    Ciphertexts terms;
    for (std::size_t at = 0; at < where.size(); ++at) {
        terms.push_back(context.engine.mul_plain(x.parts.at(at), masks[at]));
    }
    return {*x.layout.gathered(), {context.total(terms)}};
}

Packed spread(Context& context, Packed x, const Layout& layout) {
    context.begin("spread");
    Packed result{layout, {}};
    for (const std::size_t place : places(layout)) {
        const Ciphertext one = context.engine.mul_plain(x.parts.at(0), mask_of(layout, place));
        result.parts.push_back(
            context.double_and_add(one, place_size(layout), layout.outer_bits()));
    }
    return result;
}

}  // namespace atlasc
