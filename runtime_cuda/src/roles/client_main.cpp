// The commands of the client.
#include <iostream>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "atlasc/ledger.hpp"
#include "atlasc/roles.hpp"
#include "client_tensors.hpp"

namespace atlasc {
namespace {

constexpr const char* client_usage =
    "client keygen --output keys | "
    "client encrypt --key keys/secret.key --input inputs.safetensors --output query "
    "[--unchecked] | "
    "client decrypt --key keys/secret.key --answer answer --output outputs.safetensors "
    "[--unchecked]";

void warn_of_simulation() {
    if (!built_backend().encrypts) {
        std::cerr << "SIMULATION: this engine encrypts nothing; use it for rehearsals only\n";
    }
}

void keygen(const Options& options, const Interface& interface) {
    const std::string folder = options["--output"];
    make_keys(interface, folder);
    const char* const secret = built_backend().encrypts ? "the secret key; keep it"
                                                 : "a simulated key, which protects nothing";
    warn_of_simulation();
    std::cerr << folder << "/secret.key: " << secret << "\n"
              << folder << "/ledger.jsonl: what was asked with it; keep it there\n"
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
    const Message query = client.encrypt(inputs, file.path(), options.given("--unchecked"));
    // What atlasc embed knows of the inputs comes before what can be seen of them here.
    const std::string embedded = file.fact("doubt");
    Ledger(folder_of(options["--key"]))
        .add({query.query, interface.identity, query.count},
             embedded.empty() ? query.doubt : embedded);
    write_message(options["--output"], "query", interface, client.engine(), query);
    warn_of_simulation();
}

/// The outputs of an answer; the ledger knows of a refusal before the user does.
std::map<std::string, Tensor> decrypted(const Client& client, const Message& answer,
                                        bool unchecked, Ledger& ledger,
                                        const Ledger::Entry& entry) {
    std::string budget;
    const auto refused = [&] {
        ledger.refuse(entry);
        budget = "these keys refused " + std::to_string(ledger.refusals()) + " answers; after " +
                 std::to_string(Ledger::most_refusals) + " they are not used any more";
    };
    try {
        std::map<std::string, Tensor> outputs = client.decrypt(answer, unchecked, refused);
        if (!budget.empty()) {
            std::cerr << "warning: the answer is outside the range of the calibration, or copies in "
                         "it differ: "
                      << budget << '\n';
        }
        return outputs;
    } catch (Error& error) {
        error.why += (error.why.empty() || budget.empty() ? "" : "; ") + budget;
        throw;
    }
}

void decrypt(const Options& options, const Interface& interface) {
    require_new(options["--output"]);
    const Client client(interface, options["--key"]);
    // Read once: the ledger has the digest of the very bytes that are decrypted.
    const TensorFile file(
        PlainFile(options["--answer"], message_bytes(interface, client.engine())));
    const Message answer = read_message(file, "answer", interface, client.engine());
    const Ledger::Entry entry{answer.query, interface.identity, answer.count,
                              text_of(file.digest())};
    // Before anything is decrypted: what a server learns from the rest, it learns once a query.
    Ledger ledger(folder_of(options["--key"]));
    ledger.answer(entry);
    TensorWriter writer({{"program", interface.identity}});
    const auto outputs = decrypted(client, answer, options.given("--unchecked"), ledger, entry);
    for (const auto& [name, tensor] : outputs) {
        writer.add(name, tensor);
    }
    writer.write(options["--output"], Access::secret);
}

}  // namespace

int client_main(int argc, char** argv, const Interface& interface) {
    return reported([&] {
        const std::string command = argc > 1 ? argv[1] : "";
        if (command == "keygen") {
            keygen(Options(argc, argv, 2, client_usage, {"--output"}), interface);
        } else if (command == "encrypt") {
            encrypt(Options(argc, argv, 2, client_usage, {"--key", "--input", "--output"}, {},
                            {"--unchecked"}),
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
