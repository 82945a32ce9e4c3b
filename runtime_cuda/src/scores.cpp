#include "scores.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "atlasc/error.hpp"

namespace atlasc {
namespace {

const Field& field_of(const Layout& layout, char axis) {
    const Field* field = layout.field(axis);
    if (field == nullptr) {
        throw Error(std::string("scores need a slot field for axis ") + axis);
    }
    return *field;
}

}  // namespace

Scores::Scores(const Layout& scores, std::size_t baby)
    : layout(scores),
      tokens(1),
      real(layout.extent(layout.field('t') == nullptr ? 's' : 't')),
      inner(std::size_t{1} << field_of(layout, 's').bits),
      feature_bits(0),
      baby(baby),
      stride(layout.field('t') == nullptr ? 1 : static_cast<long>(layout.stride('t'))),
      top_stride(layout.stride('s')),
      halves{0} {
    for (const Field& field : layout.fields()) {
        feature_bits += field.bits;
        if (field.axis == 's') {
            break;
        }
    }
    for (const std::vector<Field>& fields : {layout.fields(), layout.outer()}) {
        for (const Field& field : fields) {
            tokens <<= field.axis == 's' ? field.bits : 0;
        }
    }
    if (tokens > 1) {
        halves.push_back(tokens / 2);
    }
    for (std::size_t slot = 0; slot < layout.slots(); ++slot) {
        tokens_of_slots_.push_back(layout.index_of_slot('t', slot));
        diagonals_of_slots_.push_back(layout.index_of_slot('s', slot));
    }
    if (baby < 1 || baby > inner || baby > std::max<std::size_t>(tokens / 2, 1)) {
        throw Error("attention cannot compute " + std::to_string(baby) + " diagonals together");
    }
}

std::vector<std::size_t> Scores::starts() const {
    std::vector<std::size_t> result;
    for (std::size_t start = 0; start < std::max<std::size_t>(tokens / 2, 1); start += baby) {
        result.push_back(start);
    }
    return result;
}

std::size_t Scores::number(Index index, std::size_t diagonal) const {
    index['s'] = diagonal;
    index['b'] = 0;
    index['t'] = 0;
    return layout.place(index).ciphertext;
}

std::vector<std::pair<long, Mask>> Scores::turned(long amount) const {
    const auto n = static_cast<long>(tokens);
    std::vector<std::pair<long, Mask>> result;
    for (const long rotation : {amount, amount > 0 ? amount - n : amount + n}) {
        if (std::labs(rotation) == n) {
            continue;
        }
        Mask inside(layout.slots());
        for (std::size_t slot = 0; slot < inside.size(); ++slot) {
            const long source = static_cast<long>(token(slot)) + rotation;
            inside[slot] = source >= 0 && source < n;
        }
        result.emplace_back(rotation, std::move(inside));
    }
    return result;
}

Mask Scores::block(std::size_t start) const {
    Mask result(layout.slots());
    for (std::size_t slot = 0; slot < result.size(); ++slot) {
        result[slot] = diagonal(slot) / baby == start % inner / baby;
    }
    return result;
}

Mask Scores::first_copy() const {
    Mask result(layout.slots());
    for (std::size_t slot = 0; slot < result.size(); ++slot) {
        result[slot] = feature(slot) < inner;
    }
    return result;
}

std::vector<std::size_t> Scores::parts() const {
    std::vector<std::size_t> result;
    for (std::size_t start = 0; start < layout.extent('s'); start += inner) {
        result.push_back(start);
    }
    return result;
}

Mask Scores::kept(std::size_t first, const Tensor* mask, bool causal, std::size_t offset,
                  std::size_t query) const {
    const std::size_t batch = layout.extent('b');
    Mask result(layout.slots());
    for (std::size_t slot = 0; slot < result.size(); ++slot) {
        const std::size_t key = (token(slot) + first + diagonal(slot) + offset) % tokens;
        const std::size_t row = token(slot) < real ? token(slot) : 0;
        bool keep = key < real && (!causal || key <= row + query);
        if (keep && mask != nullptr) {
            const std::size_t input = layout.index_of_slot('b', slot);
            keep = mask->values.at((input < batch ? input : 0) * real + key) != 0.0;
        }
        result[slot] = keep;
    }
    return result;
}

Vector Scores::log_hidden(const Tensor* mask, bool causal, std::size_t query) const {
    const std::size_t batch = layout.extent('b');
    std::vector<std::size_t> visible(batch * real);  // keys up to one, of each input
    for (std::size_t input = 0; input < batch; ++input) {
        std::size_t count = 0;
        for (std::size_t key = 0; key < real; ++key) {
            count += mask == nullptr || mask->values.at(input * real + key) != 0.0 ? 1 : 0;
            visible[input * real + key] = count;
        }
    }
    Vector result(layout.slots());
    for (std::size_t slot = 0; slot < result.size(); ++slot) {
        const std::size_t input = layout.index_of_slot('b', slot);
        const std::size_t row = token(slot) < real ? token(slot) : 0;
        const std::size_t last = causal ? row + query : real - 1;
        const std::size_t count = visible.at((input < batch ? input : 0) * real + last);
        result[slot] = std::log(static_cast<double>(real) /
                                static_cast<double>(std::max<std::size_t>(count, 1)));
    }
    return result;
}

void fill_masked(const Context& context, const Scores& scores, Ciphertexts& parts, double fill,
                 double log_keys, const Tensor* mask, bool is_causal, std::size_t query) {
    const std::vector<Index> indices = scores.layout.ciphertext_index();
    Vector visible(scores.layout.slots(), 0.0);
    if (log_keys != 0.0) {
        visible = scores.log_hidden(mask, is_causal, query);
        for (double& one : visible) {
            one *= log_keys;
        }
    }
    for (std::size_t at = 0; at < parts.size(); ++at) {
        const auto outer = indices.at(at).find('s');
        const std::size_t first = outer == indices[at].end() ? 0 : outer->second;
        const Mask kept = scores.kept(first, mask, is_causal, 0, query);
        Vector vector(scores.layout.slots());
        for (std::size_t slot = 0; slot < vector.size(); ++slot) {
            vector[slot] = kept[slot] ? visible[slot] : fill;
        }
        parts[at] = context.engine.add_plain(parts[at], std::move(vector));
    }
}

const Tensor* public_mask(const Context& context, const std::string& name, const Scores& scores) {
    if (name.empty()) {
        return nullptr;
    }
    const auto found = context.publics.find(name);
    if (found == context.publics.end()) {
        throw Error("the public input " + name + " is missing");
    }
    const std::vector<std::size_t> wanted = {scores.layout.extent('b'), scores.real};
    if (found->second.shape != wanted) {
        throw Error("the public input " + name + " has not the shape [batch, tokens]");
    }
    return &found->second;
}

}  // namespace atlasc
