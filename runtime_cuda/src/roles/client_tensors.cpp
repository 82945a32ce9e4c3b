#include "client_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "atlasc/base/error.hpp"
#include "atlasc/roles.hpp"

namespace atlasc {
namespace {

// As in atlasc/client/checks.py.

/// Times the greatest magnitude of calibration: inputs and answers beyond it are refused.
constexpr double outside_factor = 4.0;

/// Times that magnitude: larger inputs get a warning.
constexpr double large_factor = 1.05;

/// Share of that magnitude by which two copies of a number may differ.
constexpr double copies_factor = 1.0 / 16;

constexpr std::size_t shown_rows = 10;

/// Axes whose padding copies index 0, so that padding is as harmless as a real row.
constexpr const char* row_axes = "bt";

/// A tensor [..., features] as [..., g, d] of a layout, zero-padded.
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

/// The rows of a batch in which some number is wanted.
template <typename Wanted>
std::set<std::size_t> rows_where(const Tensor& tensor, std::size_t count, Wanted wanted) {
    const std::size_t row = tensor.values.size() / tensor.shape[0];
    std::set<std::size_t> rows;
    for (std::size_t at = 0; at < count * row; ++at) {
        if (wanted(tensor.values[at])) {
            rows.insert(at / row);
        }
    }
    return rows;
}

/// For each slot of an answer the element that it should hold, plus 1; 0 where it may hold anything.
/// The rows of the batch behind the first `count` copy the first.
std::vector<Vector> owners(const Output& output, std::size_t count) {
    Tensor elements{output.shape, Vector(count_of(output.shape))};
    const std::size_t row = elements.values.size() / output.shape[0];
    for (std::size_t at = 0; at < elements.values.size(); ++at) {
        elements.values[at] = static_cast<double>((at / row < count ? at : at % row) + 1);
    }
    if (output.layout.has('d')) {
        elements = blocked(elements, output.layout);
    }
    elements.shape = output.layout.shape();
    return output.layout.pack(elements, "b");
}

/// Adds the slots of an answer that cannot be right.
void judge(const std::vector<Vector>& slots, const Output& output, const Tensor& answer,
           Outside& outside) {
    const std::size_t row = answer.values.size() / answer.shape[0];
    const double magnitude = output.magnitude.value_or(INFINITY);
    const std::vector<Vector> owner = owners(output, answer.shape[0]);
    std::vector<std::optional<double>> first(answer.values.size());
    for (std::size_t part = 0; part < slots.size(); ++part) {
        for (std::size_t slot = 0; slot < slots[part].size(); ++slot) {
            if (owner[part][slot] == 0.0) {
                continue;
            }
            const auto element = static_cast<std::size_t>(owner[part][slot]) - 1;
            const double value = slots[part][slot];
            first[element] = first[element].value_or(value);
            const double factor = output.factor[element % output.factor.size()];
            const bool near = std::abs(answer.values[element]) <= outside_factor * magnitude &&
                              std::isfinite(answer.values[element]);
            // Not a number is near nothing.
            if (!near || !(std::abs(value - *first[element]) * std::abs(factor) <=
                           copies_factor * magnitude)) {
                ++outside.elements;
                outside.rows.insert(element / row);
            }
            ++outside.of;
        }
    }
}

}  // namespace

std::string rows_text(const std::set<std::size_t>& rows) {
    std::string text = rows.size() == 1 ? "row " : "rows ";
    std::size_t shown = 0;
    for (const std::size_t row : rows) {
        if (shown == shown_rows) {
            return text + " and " + std::to_string(rows.size() - shown) + " more";
        }
        text += (shown++ == 0 ? "" : ", ") + std::to_string(row);
    }
    return text;
}

void require_shape(const Shape& found, const std::string& name, const std::string& source,
                   const Shape& shape, std::size_t& count) {
    const bool fits = found.size() == shape.size() &&
                      std::equal(shape.begin() + 1, shape.end(), found.begin() + 1);
    if (!fits || found[0] < 1 || found[0] > shape[0] || (count != 0 && found[0] != count)) {
        throw Error("input " + name + " in " + source + " has not the shape of the program",
                    "the program answers 1 to " + std::to_string(shape[0]) +
                        " inputs at a time, as many of each name",
                    "make it with atlasc embed");
    }
    count = found[0];
}

Tensor whole_batch(Tensor tensor, const std::string& name, const std::string& source,
                   const Shape& shape, std::size_t& count) {
    require_shape(tensor.shape, name, source, shape, count);
    const auto row = static_cast<std::ptrdiff_t>(tensor.values.size() / count);
    const Vector first(tensor.values.begin(), tensor.values.begin() + row);
    for (; tensor.shape[0] < shape[0]; ++tensor.shape[0]) {
        tensor.values.insert(tensor.values.end(), first.begin(), first.end());
    }
    return tensor;
}

Tensor prepared(Tensor tensor, const EncryptedInput& input, const std::string& source,
                std::size_t count, bool unchecked, std::string& doubt) {
    const std::size_t features = tensor.shape.back();
    for (std::size_t row = 0; row < tensor.values.size(); row += features) {
        double mean = 0.0;
        for (std::size_t at = 0; input.centred && at < features; ++at) {
            mean += tensor.values[row + at] / static_cast<double>(features);
        }
        for (std::size_t at = 0; at < features; ++at) {
            tensor.values[row + at] = (tensor.values[row + at] - mean) * input.factor;
        }
    }
    const std::string what = "input " + input.name + " in " + source;
    const auto broken =
        rows_where(tensor, count, [](double value) { return !std::isfinite(value); });
    if (!broken.empty()) {
        throw Error(what + " has numbers that are not finite, or too large", rows_text(broken),
                    "leave these rows out");
    }
    const double known = std::max(input.magnitude.value_or(INFINITY), 1e-300);
    const auto beyond = [&](double factor) {
        return rows_where(tensor, count, [known, factor](double value) {
            return std::abs(value) / known > factor;
        });
    };
    if (const auto far = beyond(outside_factor); !far.empty() && !unchecked) {
        throw Error(what + " is far larger than anything in the calibration", rows_text(far),
                    "prepare it like the calibration data, for example pixels / 255, or leave "
                    "these rows out; --unchecked encrypts them all the same");
    }
    if (const auto large = beyond(large_factor); !large.empty()) {
        const std::string said =
            what + " is larger than anything in the calibration, in " + rows_text(large);
        std::cerr << printable("warning: " + said + ": the answers to these may be wrong") << '\n';
        doubt = "input " + input.name + " is larger than anything in the calibration, in " +
                rows_text(large);
    }
    return tensor;
}

void require_mask(const Tensor& tensor, const std::string& name, const std::string& source) {
    const auto other = rows_where(tensor, tensor.shape[0],
                                  [](double value) { return value != 0.0 && value != 1.0; });
    if (!other.empty()) {
        throw Error("input " + name + " in " + source + " is no mask",
                    "it has another number than 0 and 1 in " + rows_text(other),
                    "make it with atlasc embed");
    }
    const std::size_t row = tensor.values.size() / tensor.shape[0];
    std::set<std::size_t> empty;
    for (std::size_t at = 0; at < tensor.shape[0]; ++at) {
        const auto first = tensor.values.begin() + static_cast<std::ptrdiff_t>(at * row);
        if (std::all_of(first, first + static_cast<std::ptrdiff_t>(row),
                        [](double value) { return value == 0.0; })) {
            empty.insert(at);
        }
    }
    if (!empty.empty()) {
        throw Error("input " + name + " in " + source + " has no token but padding",
                    rows_text(empty), "leave these rows out");
    }
}

std::vector<Vector> packed_slots(Tensor tensor, const EncryptedInput& input) {
    tensor.shape = {tensor.shape[0], input.layout.extent('t'), tensor.shape.back()};
    return input.layout.pack(blocked(tensor, input.layout), row_axes);
}

Tensor answer_of(const std::vector<Vector>& slots, const Output& output, std::size_t count,
                 Outside& outside) {
    const Tensor whole = output.layout.unpack(slots);
    const std::size_t features = output.shape.back();
    const bool blocks = output.layout.has('d');
    const std::size_t padded =
        blocks ? output.layout.extent('g') * output.layout.extent('d') : features;
    Tensor answer{output.shape, {}};
    answer.shape[0] = count;
    const std::size_t size = count_of(answer.shape);
    for (std::size_t at = 0; at < size; ++at) {
        const double value = whole.values.at(at / features * padded + at % features);
        answer.values.push_back(value * output.factor[at % output.factor.size()] +
                                output.shift[at % output.shift.size()]);
    }
    judge(slots, output, answer, outside);
    return answer;
}

}  // namespace atlasc
