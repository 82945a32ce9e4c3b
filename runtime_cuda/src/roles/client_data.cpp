#include "atlasc/client_data.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"

namespace atlasc {
namespace {

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

/// An input of the batch, [count, ...], filled with copies of the first row.
Tensor whole_batch(const Tensors& inputs, const std::string& name, const Shape& shape,
                   std::size_t& count) {
    const auto found = inputs.find(name);
    if (found == inputs.end()) {
        throw Error("the input " + name + " is missing", "", "make it with atlasc embed");
    }
    Tensor tensor = found->second;
    require_shape(tensor.shape, name, shape, count);
    const auto row = static_cast<std::ptrdiff_t>(tensor.values.size() / count);
    const Vector first(tensor.values.begin(), tensor.values.begin() + row);
    for (; tensor.shape[0] < shape[0]; ++tensor.shape[0]) {
        tensor.values.insert(tensor.values.end(), first.begin(), first.end());
    }
    return tensor;
}

/// What is encrypted of an input: centred and multiplied.
Tensor prepared(Tensor tensor, const EncryptedInput& input) {
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
    return tensor;
}

/// Raises what each row reaches to what it reaches in one more input.
void raise_to(Vector& reached, const Tensor& prepared, const EncryptedInput& input) {
    const double known = std::max(input.magnitude.value_or(INFINITY), 1e-300);
    reached.resize(prepared.shape[0], 0.0);
    const std::size_t row = prepared.values.size() / std::max<std::size_t>(reached.size(), 1);
    for (std::size_t at = 0; at < prepared.values.size(); ++at) {
        const double value = std::abs(prepared.values[at]);
        double& greatest = reached[at / row];
        greatest = std::max(greatest, std::isfinite(value) ? value / known : INFINITY);
    }
}

/// Why the rows of a batch leave a doubt; empty where they leave none. Throws Error.
std::string doubt_of(const Vector& reached, bool unchecked) {
    std::string doubt;
    for (std::size_t row = 0; row < reached.size(); ++row) {
        const std::string input = "input " + std::to_string(row);
        const std::string why = reach_text(reached[row]);
        const bool finite = std::isfinite(reached[row]);
        if (!finite || (reached[row] > outside_factor && !unchecked)) {
            throw Error(input + " is not encrypted", why,
                        finite ? large_remedy : not_finite_remedy);
        }
        if (!why.empty() && doubt.empty()) {
            doubt = input + ": " + why;
        }
    }
    return doubt;
}

/// Refuse (Error) a public input that is not what its name says.
void require_public(const Tensor& tensor, const std::string& name) {
    const std::size_t row = tensor.values.size() / tensor.shape[0];
    for (std::size_t at = 0; at < tensor.shape[0]; ++at) {
        const auto first = tensor.values.begin() + static_cast<std::ptrdiff_t>(at * row);
        const auto last = first + static_cast<std::ptrdiff_t>(row);
        const std::string where = "input " + std::to_string(at) + " is not encrypted";
        if (!std::all_of(first, last, [](double one) { return one == 0.0 || one == 1.0; })) {
            throw Error(where, "its " + name + " is no mask: it has another number than 0 and 1",
                        "make it with atlasc embed");
        }
        const auto ones = std::count(first, last, 1.0);
        if (ones == 0) {
            throw Error(where, "it has no token but padding", "leave it out");
        }
        if (name == position_name && ones != 1) {
            throw Error(where, "its " + name + " is not one place but " + std::to_string(ones),
                        "make it with atlasc ask");
        }
    }
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

/// For each row of an answer the share of its slots that cannot be right.
Vector wrong_shares(const std::vector<Vector>& slots, const Output& output, const Tensor& answer) {
    const std::size_t rows = answer.shape[0];
    const std::size_t row = answer.values.size() / rows;
    const double magnitude = output.magnitude.value_or(INFINITY);
    const std::vector<Vector> owner = owners(output, rows);
    std::vector<std::optional<double>> first(answer.values.size());
    Vector wrong(rows, 0.0);
    Vector held(rows, 0.0);
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
            const bool right = near && std::abs(value - *first[element]) * std::abs(factor) <=
                                           copies_factor * magnitude;
            wrong[element / row] += right ? 0.0 : 1.0;
            held[element / row] += 1.0;
        }
    }
    for (std::size_t at = 0; at < rows; ++at) {
        wrong[at] /= std::max(held[at], 1.0);
    }
    return wrong;
}

/// The tensor that slots hold, its padding left out, as the model has it.
Tensor answer_of(const std::vector<Vector>& slots, const Output& output, std::size_t count) {
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
    return answer;
}

}  // namespace

void require_shape(const Shape& found, const std::string& name, const Shape& shape,
                   std::size_t& count) {
    const bool fits = found.size() == shape.size() &&
                      std::equal(shape.begin() + 1, shape.end(), found.begin() + 1);
    if (!fits || found[0] < 1 || found[0] > shape[0] || (count != 0 && found[0] != count)) {
        throw Error("input " + name + " has not the shape of the program",
                    "the program answers 1 to " + std::to_string(shape[0]) +
                        " inputs at a time, as many of each name",
                    "make it with atlasc embed");
    }
    count = found[0];
}

Vector reaches(const Interface& interface, const Tensors& inputs) {
    Vector reached;
    for (const EncryptedInput& input : interface.inputs) {
        raise_to(reached, prepared(inputs.at(input.name), input), input);
    }
    return reached;
}

std::string reach_text(double reached) {
    if (!std::isfinite(reached)) {
        return "what is encrypted of it is not finite";
    }
    return reached > large_factor
               ? "it reaches " + short_text(reached, 3) + " times what calibration saw"
               : "";
}

void require_closed(const Interface& interface) {
    const auto refuse = [](const std::string& why) {
        throw Error("the program asks for an input in the clear",
                    why + "; only the mask of a text (" + mask_name +
                        ") and the place of a token (" + position_name + ") may leave so",
                    "do not use this program, and ask whoever made it");
    };
    std::map<std::string, Shape> known;
    for (const PublicInput& input : interface.publics) {
        const std::string what = "it says that the server sees " + input.name;
        if ((input.name != mask_name && input.name != position_name) ||
            !known.emplace(input.name, input.shape).second) {
            refuse(what);
        }
        for (const EncryptedInput& one : interface.inputs) {
            if (one.name == input.name) {
                refuse(what + ", and that it is encrypted");
            }
        }
        if (input.shape.size() != 2 || interface.inputs.empty() ||
            input.shape[0] != interface.batch()) {
            refuse(what + ", which is not of the places of a text");
        }
    }
    if (known.count(position_name) != 0 &&
        (known.count(mask_name) == 0 || known[mask_name] != known[position_name])) {
        refuse(std::string("its ") + position_name + " is not a place of its " + mask_name);
    }
}

Packed packed(const Interface& interface, const Tensors& inputs, bool unchecked) {
    require_closed(interface);
    Packed result{{}, {}, 0};
    std::vector<Tensor> tensors;
    Vector reached;
    for (const EncryptedInput& input : interface.inputs) {
        // Sets the count.
        tensors.push_back(
            prepared(whole_batch(inputs, input.name, input.shape, result.count), input));
        raise_to(reached, tensors.back(), input);
    }
    reached.resize(result.count);  // the others are copies
    result.doubt = doubt_of(reached, unchecked);
    for (const PublicInput& input : interface.publics) {
        Tensor& mask = result.publics[input.name] =
            whole_batch(inputs, input.name, input.shape, result.count);
        require_public(mask, input.name);
    }
    for (std::size_t at = 0; at < tensors.size(); ++at) {
        const EncryptedInput& input = interface.inputs[at];
        Tensor& tensor = tensors[at];
        // [batch, tokens, g, d], or [batch, g, d] for the row of one token that is copied to all.
        const bool rows = input.layout.shape().size() == 4;
        tensor.shape = rows ? Shape{tensor.shape[0], input.layout.extent('t'), tensor.shape.back()}
                            : Shape{tensor.shape[0], tensor.shape.back()};
        result.slots[input.name] = input.layout.pack(blocked(tensor, input.layout), row_axes);
    }
    return result;
}

Answers answers(const Interface& interface, const NamedSlots& slots, std::size_t count) {
    Answers result;
    for (const Output& output : interface.outputs) {
        const std::vector<Vector>& held = slots.at(output.name);
        const Tensor& answer = result.outputs[output.name] =
            answer_of(held, output, std::min(count, output.shape[0]));
        const Vector wrong = wrong_shares(held, output, answer);
        for (std::size_t row = 0; row < wrong.size(); ++row) {
            if (wrong[row] > 0.0) {
                result.refused[row] = std::max(result.refused[row], wrong[row]);
            }
        }
    }
    return result;
}

}  // namespace atlasc
