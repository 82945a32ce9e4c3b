// Linear transforms over the packed features, by the diagonal method with baby and giant steps.
//
// With W[p, q] the weight between positions p and q, k = giant * B + baby, rot(x, r)[i] = x[i + r]:
//
//     y = sum_giant rot( sum_baby rot(diag_k, -giant * B) * rot(x, baby), giant * B )
//     diag_k[p] = W[p, p + k]
//
// Two diagonals can share a complex plaintext: with P positions and z = x + i rot(x, P/2),
//
//     y = Re sum_{k < P/2} (diag_k - i diag_{k + P/2}) * rot(z, k).
//
// The features of the result may lie elsewhere than those of an operand that is replicated below
// its features: each slot has all positions of x in reach.
#include <algorithm>
#include <map>
#include <set>

#include "atlasc/error.hpp"
#include "atlasc/kernels.hpp"
#include "shapes.hpp"

namespace atlasc {
namespace {

constexpr std::size_t none = static_cast<std::size_t>(-1);

/// Where the features of a layout lie.
struct FeatureMap {
    std::size_t stride = 1;     ///< slots of one feature position
    std::size_t positions = 1;  ///< feature positions in a ciphertext
    /// Feature at [ciphertext][position]; `none` for padding.
    std::vector<std::vector<std::size_t>> feature;

    /// With `copied` the padding blocks hold the features of block 0.
    FeatureMap(const Layout& layout, std::size_t features, bool copied) {
        for (std::size_t at = 0; at < layout.fields().size(); ++at) {
            const char axis = layout.fields()[at].axis;
            if (axis == 'd' || axis == 'g') {
                stride = std::size_t{1} << layout.offset(at);
            }
        }
        positions = layout.slots() / stride;
        feature.assign(layout.ciphertexts(), std::vector<std::size_t>(positions, none));
        const std::size_t width = layout.extent('d');
        const std::size_t places =
            copied ? layout.padded("g").extent('g') * width : features;
        for (std::size_t at = 0; at < places; ++at) {
            const Place block = layout.place('g', at / width);
            const Place inner = layout.place('d', at % width);
            feature.at(block.ciphertext + inner.ciphertext)
                .at((block.slot + inner.slot) / stride) = at < features ? at : at % width;
        }
    }

    /// Positions of another stride that hold a feature.
    std::set<std::size_t> occupied(std::size_t ciphertext, std::size_t other) const {
        std::set<std::size_t> result;
        for (std::size_t slot = 0; slot < positions * stride; slot += std::min(stride, other)) {
            if (feature[ciphertext][slot / stride] != none) {
                result.insert(slot / other);
            }
        }
        return result;
    }
};

/// Diagonals that can be nonzero, for one target and one source ciphertext; of two that share a
/// plaintext the lower one.
std::vector<std::size_t> diagonals(const FeatureMap& source, std::size_t into,
                                   const FeatureMap& target, std::size_t out, bool paired) {
    const std::size_t count = source.positions;
    const std::set<std::size_t> outputs = target.occupied(out, source.stride);
    std::set<std::size_t> result;
    for (std::size_t k = 0; k < count; ++k) {
        const bool some = std::any_of(outputs.begin(), outputs.end(), [&](std::size_t at) {
            return source.feature[into][(at + k) % count] != none;
        });
        if (some) {
            result.insert(paired ? k % (count / 2) : k);
        }
    }
    return {result.begin(), result.end()};
}

/// Rows of a weight, or elements of a bias, turned as rotary embedding turns features.
Tensor rotate_half(const Tensor& tensor, std::size_t width) {
    Tensor turned = tensor;
    const std::size_t row = tensor.values.size() / tensor.shape[0];
    const std::size_t half = width / 2;
    for (std::size_t at = 0; at < tensor.shape[0]; ++at) {
        const bool low = at % width < half;
        const std::size_t from = low ? at + half : at - half;
        for (std::size_t column = 0; column < row; ++column) {
            const double value = tensor.values[from * row + column];
            turned.values[at * row + column] = low ? -value : value;
        }
    }
    return turned;
}

/// Plaintext diagonals of one linear transform, made one at a time.
class Weights {
public:
    Weights(const Context& context, const Linear& arrays, const FeatureMap& source,
            const FeatureMap& target, const Layout& layout, Flags flags)
        : source_(source), target_(target), weight_(context.weights.tensor(arrays.weight)) {
        if (flags & first_row) {
            rows_ = first_rows(layout);
        }
        if (!arrays.cos.empty()) {
            turned_ = rotate_half(weight_, layout.extent('d'));
            cos_ = table(context.weights.tensor(arrays.cos), layout);
            sin_ = table(context.weights.tensor(arrays.sin), layout);
        }
    }

    /// Slots that one number of a diagonal stands for: the rows of a feature share its weight,
    /// unless a table or a choice of rows tells them apart.
    std::size_t run() const {
        const bool alike = cos_.empty() && rows_.empty();
        return alike ? std::min(source_.stride, target_.stride) : 1;
    }

    /// Diagonal k, a number for each run of slots.
    Vector diagonal(std::size_t out, std::size_t into, std::size_t k) const {
        Vector numbers(source_.positions * source_.stride / run(), 0.0);
        for (std::size_t at = 0; at < numbers.size(); ++at) {
            const std::size_t slot = at * run();
            const std::size_t from = (slot / source_.stride + k) % source_.positions;
            const std::size_t row = target_.feature[out][slot / target_.stride];
            const std::size_t column = source_.feature[into][from];
            if (row == none || column == none) {
                continue;
            }
            const std::size_t place = row * weight_.shape[1] + column;
            numbers[at] = weight_.values[place];
            if (!cos_.empty()) {
                numbers[at] = numbers[at] * cos_[out][slot] +
                              turned_.values[place] * sin_[out][slot];
            }
            if (!rows_.empty()) {
                numbers[at] *= rows_[slot];
            }
        }
        return numbers;
    }

    /// Diagonals k and k + P/2 as one of complex numbers, halved.
    ComplexVector pair(std::size_t out, std::size_t into, std::size_t k) const {
        const Vector one = diagonal(out, into, k);
        const Vector other = diagonal(out, into, k + source_.positions / 2);
        ComplexVector numbers(one.size());
        for (std::size_t at = 0; at < numbers.size(); ++at) {
            numbers[at] = {one[at] / 2, -other[at] / 2};
        }
        return numbers;
    }

private:
    /// A rotary table [tokens, width] in slots.
    static std::vector<Vector> table(Tensor table, const Layout& layout) {
        const std::size_t width = table.shape.at(1);
        table.shape = layout.field('t') == nullptr
                          ? std::vector<std::size_t>{1, 1, width}
                          : std::vector<std::size_t>{1, table.shape.at(0), 1, width};
        return layout.pack(table, std::string(row_axes) + "g");
    }

    const FeatureMap& source_;
    const FeatureMap& target_;
    Tensor weight_;
    Tensor turned_;
    Vector rows_;
    std::vector<Vector> cos_;
    std::vector<Vector> sin_;
};

void add_bias(const Context& context, const Linear& arrays, Packed& result, Flags flags) {
    const Layout& layout = result.layout;
    const Tensor bias = context.weights.tensor(arrays.bias);
    Tensor tensor = blocked(bias, layout);
    if (!arrays.cos.empty()) {  // [g, d] becomes [tokens, g, d]
        const std::size_t width = layout.extent('d');
        const Tensor turned = blocked(rotate_half(bias, width), layout);
        const Tensor cos = context.weights.tensor(arrays.cos);
        const Tensor sin = context.weights.tensor(arrays.sin);
        const std::size_t features = tensor.values.size();
        Tensor rotated{{cos.shape.at(0), tensor.shape[0], width}, {}};
        for (std::size_t at = 0; at < rotated.shape[0] * features; ++at) {
            const std::size_t place = at / features * width + at % width;
            rotated.values.push_back(tensor.values[at % features] * cos.values[place] +
                                     turned.values[at % features] * sin.values[place]);
        }
        tensor = rotated;
    }
    const std::string repeat = (flags & copy_padding) ? std::string(row_axes) + "g" : row_axes;
    std::vector<Vector> packed = layout.pack(tensor, repeat);
    const Vector rows = (flags & first_row) ? first_rows(layout) : Vector();
    for (std::size_t out = 0; out < packed.size(); ++out) {
        for (std::size_t slot = 0; slot < rows.size(); ++slot) {
            packed[out][slot] *= rows[slot];
        }
        result.parts.at(out) = context.engine.add_plain(result.parts.at(out), packed[out]);
    }
}

}  // namespace

Packed linear_transform(Context& context, Packed x, const Linear& arrays, std::size_t baby_steps,
                        const Layout& layout, Flags flags) {
    context.begin("linear_transform");
    require_shapes(context, arrays, x, layout);
    const std::vector<std::size_t> shape = context.weights.shape(arrays.weight);
    const FeatureMap source(x.layout, shape.at(1), false);
    const FeatureMap target(layout, shape.at(0), (flags & copy_padding) != 0);
    Engine& engine = context.engine;
    const bool in_pairs = (flags & paired) != 0;
    if (baby_steps == 0 || (in_pairs && source.positions % 2 != 0)) {
        throw Error("a linear layer has no such steps", arrays.weight);
    }
    const auto slots_of = [&](std::size_t position) {
        return static_cast<long>(position * source.stride);
    };

    using Row = std::vector<std::vector<std::size_t>>;
    std::vector<Row> cells;  // diagonals of [target][source]
    for (std::size_t out = 0; out < target.feature.size(); ++out) {
        cells.emplace_back();
        for (std::size_t into = 0; into < source.feature.size(); ++into) {
            cells[out].push_back(diagonals(source, into, target, out, in_pairs));
        }
    }

    std::vector<std::map<std::size_t, Ciphertext>> babies;  // by amount, for each source
    for (std::size_t into = 0; into < source.feature.size(); ++into) {
        Ciphertext operand = x.parts.at(into);
        if (in_pairs) {
            const Ciphertext half = context.rotate(operand, slots_of(source.positions / 2));
            operand = engine.add(operand, engine.times_i(half));
        }
        std::set<std::size_t> steps;
        for (const Row& row : cells) {
            for (const std::size_t k : row[into]) {
                steps.insert(k % baby_steps);
            }
        }
        std::vector<long> amounts;
        for (const std::size_t step : steps) {
            amounts.push_back(slots_of(step));
        }
        const Ciphertexts rotated = context.rotate_many(operand, amounts);
        babies.emplace_back();
        std::size_t at = 0;
        for (const std::size_t step : steps) {
            babies.back()[step] = rotated[at++];
        }
    }

    const Weights weights(context, arrays, source, target, layout, flags);
    Packed result{layout, {}};
    for (std::size_t out = 0; out < cells.size(); ++out) {
        struct Terms {
            Ciphertexts operands;
            std::vector<Plaintext> factors;
        };
        std::map<std::size_t, Terms> inner;  // by giant step
        for (std::size_t into = 0; into < cells[out].size(); ++into) {
            for (const std::size_t k : cells[out][into]) {
                const std::size_t giant = k / baby_steps;
                const long back =
                    slots_of(giant * baby_steps) / static_cast<long>(weights.run());
                Terms& terms = inner[giant];
                terms.operands.push_back(babies[into].at(k % baby_steps));
                if (in_pairs) {
                    terms.factors.emplace_back(rolled(weights.pair(out, into, k), back));
                } else {
                    terms.factors.emplace_back(rolled(weights.diagonal(out, into, k), back));
                }
            }
        }
        Ciphertexts turned;
        for (const auto& [giant, terms] : inner) {
            const Ciphertext sum = engine.dot_plain(terms.operands, terms.factors);
            turned.push_back(context.rotate(sum, slots_of(giant * baby_steps)));
        }
        const Ciphertext total = context.total(turned);
        result.parts.push_back(in_pairs ? engine.add(total, engine.conjugate(total)) : total);
    }
    if (!arrays.bias.empty()) {
        add_bias(context, arrays, result, flags);
    }
    return result;
}

}  // namespace atlasc
