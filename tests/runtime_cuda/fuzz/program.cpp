#include "program.hpp"

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "atlasc/backend.hpp"
#include "atlasc/base/json.hpp"
#include "atlasc/client_data.hpp"

namespace small {
namespace {

using namespace atlasc;

/// Sixteen slots; of an engine that encrypts, the least ring of 128 bits with a level to spare.
struct Size {
    Parameters parameters;
    const char* layout;
};

const Size& size() {
    static const Size simulated{{16, 3, std::nullopt, 1}, "[d:2 b:1 t:1 |  | b=2 t=2 g=1 d=4]"};
    static const Size encrypting{{2048, 1, std::nullopt, 1, Moduli{{36, 26}, {42}, 26, {}}},
                                 "[*:7 d:2 b:1 t:1 |  | b=2 t=2 g=1 d=4]"};
    return built_backend().encrypts ? encrypting : simulated;
}

Tensor weight() {
    Tensor tensor{{4, 4}, {}};
    for (int at = 0; at < 16; ++at) {
        tensor.values.push_back((at % 5 - 2) / 8.0);
    }
    return tensor;
}

Tensor bias() { return {{4}, {0.5, -0.5, 0.25, 0.0}}; }

template <typename Number>
Bytes bytes_of(const std::vector<Number>& numbers) {
    Bytes bytes(numbers.size() * sizeof(Number));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
}

/// The record of a product with the diagonal of the weight, and of a sum with the bias.
std::map<std::string, Bytes> record() {
    const std::vector<std::int32_t> tables = {0, 5, 10, 15, 0, 1, 2, 3};
    const Vector floats = {1.0, 0.0};
    const std::vector<std::int32_t> code = {
        2, 4, 1, 4, 1,                 // tables: their lengths, and how often they repeat
        2,                             // plaintexts: terms, factor, lookups, source, argument,
        1, 0, 1, 1, 2, 1, 1, 0, 0,     // places, table, rotation: elements of the weight,
        1, 0, 1, 1, 2, 0, 1, 1, 0,     // and of the bias
        1, 1, 3, 2, 0, 0,              // diagonal_1: operands, registers, arrays that are no masks
        2,                             // instructions
        7, 1, 0, 1, 0, 0, 1, 1, 1, 0,  // %1 = mul_plain %0 {0}, and %0 is released
        3, 1, 1, 1, 1, 0, 1, 2, 1, 1,  // %2 = add_plain %1 {1}
        1, 2,                          // return %2
    };
    const std::string names = "diagonal_1";
    return {{"record/code", bytes_of(code)},
            {"record/tables", bytes_of(tables)},
            {"record/floats", bytes_of(floats)},
            {"record/names", Bytes(names.begin(), names.end())}};
}

Array described(const std::string& name, const Tensor& tensor) {
    const Digest digest = sha256(tensor.values.data(), tensor.values.size() * sizeof(double));
    return {name, "F64", tensor.shape, text_of(digest)};
}

Array described(const std::string& name, const Bytes& bytes) {
    return {name, "U8", {bytes.size()}, text_of(sha256(bytes.data(), bytes.size()))};
}

/// What the server sees; a hostile program may name anything.
std::string public_name() {
    const char* const given = std::getenv("ATLASC_TEST_PUBLIC");
    return given == nullptr ? mask_name : given;
}

}  // namespace

const Interface& interface() {
    static const Interface facts = [] {
        const Layout layout(size().layout);
        const int top = size().parameters.max_level;
        Interface made{"small", std::string(64, 'a'), size().parameters,
                       {{}, -1, -1}, {}, {}, {}};
        for (std::size_t amount = 1; amount < (built_backend().encrypts ? 2 : 16); ++amount) {
            made.keys.rotations[amount] = top;
        }
        made.inputs.push_back({"x", {2, 2, 4}, layout, top, 1.0, false, 1.0});
        made.publics.push_back({public_name(), {2, 2}});
        made.outputs.push_back({"y", {2, 2, 4}, layout, {1.0}, {0.0}, top - 1, 2.0, 1e-9});
        made.weights = {described("bias", bias()), described("weight", weight())};
        for (const auto& [name, bytes] : record()) {
            made.weights.push_back(described(name, bytes));
        }
        made.ops = 1;
        return made;
    }();
    return facts;
}

Values execute(Context& context, Values inputs) {
    context.at("small");
    Values results;
    results["y"] = context.call("diagonal_1", {"bias", "weight"}, std::move(inputs.at("x")));
    return results;
}

void write_weights(const std::string& path) {
    TensorWriter writer({{"program", interface().identity}});
    writer.add("weight", weight());
    writer.add("bias", bias());
    for (const auto& [name, bytes] : record()) {
        writer.add(name, bytes);
    }
    writer.write(path);
}

namespace {

template <typename Number>
std::string listed(const std::vector<Number>& numbers) {
    std::ostringstream text;
    for (std::size_t at = 0; at < numbers.size(); ++at) {
        text << (at == 0 ? "" : ", ") << numbers[at];
    }
    return "[" + text.str() + "]";
}

}  // namespace

std::string text() {
    const Interface& facts = interface();
    std::ostringstream text;
    text << "{\"format\": 2, \"model\": \"small\", \"parameters\": {\"slots\": "
         << facts.parameters.slots << ", \"max_level\": " << facts.parameters.max_level
         << ", \"bootstrap_batch\": 1";
    if (facts.parameters.moduli) {
        const Moduli& moduli = *facts.parameters.moduli;
        text << ", \"moduli\": {\"primes\": " << listed(moduli.primes) << ", \"special\": "
             << listed(moduli.special) << ", \"scale\": " << moduli.scale
             << ", \"log_scales\": " << listed(moduli.log_scales) << "}";
    }
    text << "}, \"keys\": {\"rotations\": []}, \"needs\": {\"rotations\": [";
    for (const auto& [amount, level] : facts.keys.rotations) {
        text << (amount == 1 ? "" : ", ") << "[" << amount << ", " << level << "]";
    }
    const std::string layout = json_string(size().layout);
    text << "]}, \"inputs\": [{\"name\": \"x\", \"shape\": [2, 2, 4], \"layout\": " << layout
         << ", \"level\": " << facts.inputs[0].level << ", \"centred\": false, \"magnitude\": 1.0}]"
         << ", \"publics\": [{\"name\": \"" << public_name() << "\", \"shape\": [2, 2]}]"
         << ", \"outputs\": [{\"layout\": " << layout << ", \"level\": " << facts.outputs[0].level
         << ", \"name\": \"y\", \"shape\": [2, 2, 4], \"magnitude\": 2.0, \"noise\": 1e-9, "
         << "\"value\": 1, \"factor\": 1.0, \"shift\": -0.0}]"
         << ", \"calls\": [{\"name\": \"ckks.linear_transform\", \"kind\": \"linear\", "
         << "\"location\": \"small\", \"layer\": 0, \"function\": \"diagonal_1\", "
         << "\"arrays\": [\"bias\", \"weight\"], \"operands\": [0], \"seconds\": 0.5}], "
         << "\"measured\": 1, \"memory\": 0, \"arrays\": [";
    for (std::size_t at = 0; at < facts.weights.size(); ++at) {
        const Array& array = facts.weights[at];
        text << (at == 0 ? "" : ", ") << "{\"name\": " << json_string(array.name)
             << ", \"type\": \"" << array.type << "\", \"shape\": " << listed(array.shape)
             << ", \"sha256\": \"" << array.sha256 << "\"}";
    }
    text << "]}";
    return text.str();
}

void write_program(const std::string& path, const std::string& name, const std::string& text) {
    TensorWriter writer({{"program", interface().identity},
                         {"sha256", text_of(sha256(text.data(), text.size()))}});
    writer.add("weight", weight());
    writer.add("bias", bias());
    for (const auto& [array, bytes] : record()) {
        writer.add(array, bytes);
    }
    writer.add(name, Bytes(text.begin(), text.end()));
    writer.write(path);
}

std::map<std::string, Tensor> inputs(std::size_t count) {
    Tensor x{{count, 2, 4}, {}};
    for (std::size_t at = 0; at < count * 8; ++at) {
        x.values.push_back(static_cast<double>(at) / 16.0 - 0.5);
    }
    Tensor mask{{count, 2}, Vector(count * 2, 1.0)};
    mask.values.back() = 0.0;
    return {{"x", x}, {mask_name, mask}};
}

}  // namespace small
