// The commands of the client.
#include <iostream>

#include "atlasc/backend.hpp"
#include "atlasc/error.hpp"
#include "atlasc/queries.hpp"
#include "atlasc/roles.hpp"
#include "client_tensors.hpp"

namespace atlasc {
namespace {

constexpr const char* client_usage =
    "client keygen --output keys | "
    "client encrypt --key keys/secret.key --input inputs.safetensors --output query | "
    "client decrypt --key keys/secret.key --answer answer --output outputs.safetensors "
    "[--unchecked]";

void warn_of_simulation() {
    if (!backend::encrypts) {
        std::cerr << "SIMULATION: this engine encrypts nothing; use it for rehearsals only\n";
    }
}

void keygen(const Options& options, const Interface& interface) {
    const std::string folder = options["--output"];
    make_keys(interface, folder);
    const char* const secret = backend::encrypts ? "the secret key; keep it"
                                                 : "a simulated key, which protects nothing";
    warn_of_simulation();
    std::cerr << folder << "/secret.key: " << secret << "\n"
              << folder << "/queries: what was asked with it; keep it there\n"
              << folder << "/evaluation.key: evaluation keys; for the server\n";
}

void encrypt(const Options& options, const Interface& interface) {
    require_new(options["--output"]);
    const Client client(interface, options["--key"]);
    const TensorFile file(options["--input"]);
    std::map<std::string, Tensor> inputs;
    std::size_t count = 0;
    const auto read = [&](const std::string& name, const Shape& shape) {
        require_shape(file.shape(name), name, file.path(), shape, count);
        inputs[name] = file.tensor(name);
    };
    for (const EncryptedInput& input : interface.inputs) {
        read(input.name, input.shape);
    }
    for (const PublicInput& input : interface.publics) {
        read(input.name, input.shape);
    }
    const Message query = client.encrypt(inputs, file.path());
    Queries(options["--key"]).add(query.query, query.count);
    write_message(options["--output"], "query", interface, client.engine(), query);
    warn_of_simulation();
}

void decrypt(const Options& options, const Interface& interface) {
    require_new(options["--output"]);
    const Client client(interface, options["--key"]);
    const TensorFile file(options["--answer"]);
    const Message answer = read_message(file, "answer", interface, client.engine());
    // Before anything is shown: what a server learns from a refusal, it learns once a query.
    Queries(options["--key"]).answer(answer.query, answer.count, text_of(file.digest()));
    TensorWriter writer({{"program", interface.identity}});
    for (const auto& [name, tensor] : client.decrypt(answer, options.given("--unchecked"))) {
        writer.add(name, tensor);
    }
    writer.write(options["--output"]);
}

}  // namespace

int client_main(int argc, char** argv, const Interface& interface) {
    return reported([&] {
        const std::string command = argc > 1 ? argv[1] : "";
        if (command == "keygen") {
            keygen(Options(argc, argv, 2, client_usage, {"--output"}), interface);
        } else if (command == "encrypt") {
            encrypt(Options(argc, argv, 2, client_usage, {"--key", "--input", "--output"}),
                    interface);
        } else if (command == "decrypt") {
            decrypt(Options(argc, argv, 2, client_usage, {"--key", "--answer", "--output"}, {},
                            {"--unchecked"}),
                    interface);
        } else {
            throw Error("which command?", "", client_usage);
        }
    });
}

}  // namespace atlasc
