#include <algorithm>
#include <filesystem>
#include <iostream>

#include "atlasc/backend.hpp"
#include "atlasc/error.hpp"
#include "atlasc/roles.hpp"

namespace atlasc {
namespace {

constexpr const char* usage =
    "client keygen --output keys | "
    "client encrypt --key keys/secret.key --input inputs.safetensors --output query | "
    "client decrypt --key keys/secret.key --answer answer --output outputs.safetensors";

/// Raw inputs [count, ...] as a whole batch, filled with copies of the first.
Tensor batch_of(Tensor tensor, const std::string& name, const std::string& source,
                const std::vector<std::size_t>& shape, std::size_t& count) {
    const bool fits = tensor.shape.size() == shape.size() &&
                      std::equal(shape.begin() + 1, shape.end(), tensor.shape.begin() + 1);
    if (!fits || tensor.shape[0] < 1 || tensor.shape[0] > shape[0] ||
        (count != 0 && tensor.shape[0] != count)) {
        throw Error("input " + name + " in " + source + " has not the shape of the program",
                    "the program answers 1 to " + std::to_string(shape[0]) +
                        " inputs at a time, as many of each name",
                    "make it with atlasc embed");
    }
    count = tensor.shape[0];
    const auto row = static_cast<std::ptrdiff_t>(tensor.values.size() / count);
    const Vector first(tensor.values.begin(), tensor.values.begin() + row);
    for (; tensor.shape[0] < shape[0]; ++tensor.shape[0]) {
        tensor.values.insert(tensor.values.end(), first.begin(), first.end());
    }
    return tensor;
}

/// Slots of a tensor [batch, tokens, features] or [batch, features].
std::vector<Vector> packed_slots(Tensor tensor, const EncryptedInput& input) {
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
    tensor.shape = {tensor.shape[0], input.layout.extent('t'), features};
    return input.layout.pack(blocked(tensor, input.layout), row_axes);
}

/// The tensor that slots hold, its padding features left out, as the client's program has it.
Tensor answer_of(const std::vector<Vector>& slots, const Output& output, std::size_t count) {
    const Tensor whole = output.layout.unpack(slots);
    const std::size_t features = output.shape.back();
    const bool blocks = output.layout.field('d') != nullptr;
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

void keygen(const Options& options, const Interface& interface) {
    const std::string folder = options["--output"];
    make_keys(interface, folder);
    std::cerr << folder << "/secret.key: the secret key; keep it\n"
              << folder << "/evaluation.key: evaluation keys; for the server\n";
}

void encrypt(const Options& options, const Interface& interface) {
    require_new(options["--output"]);
    const Client client(interface, options["--key"]);
    const TensorFile file(options["--input"]);
    std::map<std::string, Tensor> inputs;
    for (const EncryptedInput& input : interface.inputs) {
        inputs[input.name] = file.tensor(input.name);
    }
    for (const PublicInput& input : interface.publics) {
        inputs[input.name] = file.tensor(input.name);
    }
    const Message query = client.encrypt(inputs, file.path());
    write_message(options["--output"], "query", interface, client.engine(), query);
}

void decrypt(const Options& options, const Interface& interface) {
    require_new(options["--output"]);
    const Client client(interface, options["--key"]);
    const Message answer = read_message(options["--answer"], "answer", interface, client.engine());
    TensorWriter writer({{"program", interface.identity}});
    for (const auto& [name, tensor] : client.decrypt(answer)) {
        writer.add(name, tensor);
    }
    writer.write(options["--output"]);
}

}  // namespace

void make_keys(const Interface& interface, const std::string& folder) {
    namespace fs = std::filesystem;
    require_new(folder);
    std::error_code failure;
    fs::create_directory(folder, failure);
    if (failure) {
        throw Error("cannot make the folder " + folder, failure.message());
    }
    try {
        const fs::path place = folder;
        backend::generate_keys(interface, (place / "secret.key").string(),
                               (place / "evaluation.key").string());
    } catch (...) {
        fs::remove_all(folder, failure);
        throw;
    }
}

Client::Client(const Interface& interface, const std::string& key)
    : interface_(interface), engine_(backend::client_engine(interface, key)) {}

Message Client::encrypt(const std::map<std::string, Tensor>& inputs,
                        const std::string& source) const {
    const auto given = [&](const std::string& name) {
        const auto found = inputs.find(name);
        if (found == inputs.end()) {
            throw Error("the input " + name + " is missing", "", "make it with atlasc embed");
        }
        return found->second;
    };
    Message query{{}, {}, 0};
    for (const EncryptedInput& input : interface_.inputs) {
        const Tensor tensor =
            batch_of(given(input.name), input.name, source, input.shape, query.count);
        Packed packed{input.layout, {}};
        for (const Vector& slots : packed_slots(tensor, input)) {
            packed.parts.push_back(engine_->encrypt(slots, input.level));
        }
        query.values.emplace(input.name, std::move(packed));
    }
    for (const PublicInput& input : interface_.publics) {
        query.publics[input.name] =
            batch_of(given(input.name), input.name, source, input.shape, query.count);
    }
    return query;
}

std::map<std::string, Tensor> Client::decrypt(const Message& answer) const {
    std::map<std::string, Tensor> result;
    for (const Output& output : interface_.outputs) {
        std::vector<Vector> slots;
        for (const Ciphertext& part : answer.values.at(output.name).parts) {
            slots.push_back(engine_->decrypt(part));
        }
        result[output.name] = answer_of(slots, output, std::min(answer.count, output.shape[0]));
    }
    return result;
}

int client_main(int argc, char** argv, const Interface& interface) {
    return reported([&] {
        const std::string command = argc > 1 ? argv[1] : "";
        if (command == "keygen") {
            keygen(Options(argc, argv, 2, usage, {"--output"}), interface);
        } else if (command == "encrypt") {
            encrypt(Options(argc, argv, 2, usage, {"--key", "--input", "--output"}), interface);
        } else if (command == "decrypt") {
            decrypt(Options(argc, argv, 2, usage, {"--key", "--answer", "--output"}), interface);
        } else {
            throw Error("which command?", "", usage);
        }
    });
}

}  // namespace atlasc
