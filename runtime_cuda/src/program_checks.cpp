#include "src/program_checks.hpp"

#include <algorithm>
#include <set>

#include "atlasc/base/error.hpp"

namespace atlasc {
namespace {

/// Of a tensor, and slots of all its ciphertexts.
constexpr std::size_t most_elements = std::size_t{1} << 28;

/// Product of the extents from one on; more than a bound is refused.
std::size_t product(const TensorFile& file, const std::vector<std::size_t>& extents,
                    std::size_t first, std::size_t last) {
    std::size_t result = 1;
    for (std::size_t at = first; at < last; ++at) {
        if (extents[at] == 0 || extents[at] > most_elements / result) {
            refuse_program(file, "a tensor in its text is empty or too large");
        }
        result *= extents[at];
    }
    return result;
}

/// Refuse (Error) a tensor that does not lie in its layout, by the rules of the compiler (ckks.input
/// and ckks.output in ir/ops/ckks.py).
void require_fitting(const TensorFile& file, const std::vector<std::size_t>& shape,
                     const Layout& layout, std::size_t slots) {
    const std::vector<std::size_t> extents = layout.shape();
    const std::size_t rank = shape.size();
    const std::size_t whole = product(file, extents, 0, extents.size());
    bool fits = rank > 0 && product(file, shape, 0, rank) > 0 && layout.slots() == slots &&
                layout.ciphertexts() <= most_elements / slots;
    const std::string axes = layout.axes();
    if (axes == "btgd") {
        fits = fits && rank >= 2 && shape[0] == extents[0] &&
               product(file, shape, 1, rank - 1) == extents[1] &&
               shape[rank - 1] <= extents[2] * extents[3];
    } else {
        std::size_t elements = whole;
        if (axes.find('d') != std::string::npos && extents.size() >= 2 && rank > 0) {
            const std::size_t features = product(file, extents, extents.size() - 2, extents.size());
            elements = whole / features * std::min(features, shape[rank - 1]);
        }
        fits = fits && product(file, shape, 0, rank) == elements &&
               (axes.find('b') == std::string::npos || shape[0] == layout.extent('b'));
    }
    if (!fits) {
        refuse_program(file, "a tensor does not lie in its layout");
    }
}

}  // namespace

void refuse_program(const TensorFile& file, const std::string& why) {
    throw Error(file.name() + " is damaged", why, "compile the model again, or restore the file");
}

void require_sound(const TensorFile& file, const Interface& interface) {
    std::set<std::string> inputs;
    std::set<std::string> outputs;
    const auto name = [&file](std::set<std::string>& known, const char* kind, const std::string& one) {
        const bool allowed = !one.empty() && one.size() <= 200 &&
                             one.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                   "0123456789_.-") == std::string::npos;
        if (!allowed) {
            refuse_program(file, "an input or output has a name that is not allowed");
        }
        if (!known.insert(one).second) {
            refuse_program(file, std::string("two ") + kind + " have the same name");
        }
    };
    const std::set<std::string> engines{"", "cuda", "phantom"};
    if (engines.count(interface.engine) == 0) {
        refuse_program(file, "it is for the engine '" + interface.engine + "', which is none of GPUs");
    }
    const Parameters& parameters = interface.parameters;
    const auto packed = [&](const auto& one) {
        if (!one.state) {  // the server alone reads its state, as its calls wrote it
            require_fitting(file, one.shape, one.layout, parameters.slots);
        }
        if (one.level > parameters.max_level) {
            refuse_program(file, "a level is higher than the parameters have");
        }
    };
    for (const EncryptedInput& input : interface.inputs) {
        name(inputs, "inputs", input.name);
        packed(input);
        if (!input.state && input.layout.axes() != "btgd" && input.layout.axes() != "bgd") {
            refuse_program(file, "an input is packed in a way that no client knows");
        }
    }
    for (const PublicInput& input : interface.publics) {
        name(inputs, "inputs", input.name);
        if (input.shape.empty() || product(file, input.shape, 0, input.shape.size()) == 0) {
            refuse_program(file, "a public input has no shape");
        }
    }
    for (const Output& output : interface.outputs) {
        name(outputs, "outputs", output.name);
        packed(output);
        if (output.factor.empty() || output.shift.empty()) {
            refuse_program(file, "an output has no factor or no shift");
        }
    }
}

}  // namespace atlasc
