#include "client_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "atlasc/error.hpp"
#include "atlasc/roles.hpp"

namespace atlasc {
namespace {

/// A slot of an answer is outside at so many times the greatest that calibration saw.
constexpr double outside_factor = 4.0;

/// Of the calibrated magnitudes, which are rounded to nine digits.
constexpr double rounding = 1e-6;

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
                std::size_t count) {
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
    if (input.magnitude) {
        const double most = *input.magnitude * (1 + rounding);
        const auto large =
            rows_where(tensor, count, [most](double value) { return std::abs(value) > most; });
        if (!large.empty()) {
            std::cerr << printable("warning: " + what + " is larger than anything in the "
                                   "calibration, in " + rows_text(large) +
                                   ": the answers to these may be wrong") << '\n';
        }
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
    const double most = outside_factor * output.magnitude.value_or(INFINITY);
    for (std::size_t at = 0; at < size; ++at) {
        const double value = whole.values.at(at / features * padded + at % features);
        answer.values.push_back(value * output.factor[at % output.factor.size()] +
                                output.shift[at % output.shift.size()]);
        if (!std::isfinite(answer.values.back()) || std::abs(value) > most) {
            ++outside.elements;
            outside.rows.insert(at / (size / count));
        }
    }
    outside.of += size;
    return answer;
}

}  // namespace atlasc
