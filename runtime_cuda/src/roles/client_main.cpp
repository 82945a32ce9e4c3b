// The commands of the client.
#include <algorithm>
#include <cmath>
#include <iostream>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "atlasc/ledger.hpp"
#include "atlasc/roles.hpp"

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
    Tensors inputs;
    std::size_t count = 0;
    try {
        const auto read = [&](const std::string& name, const Shape& shape) {
            require_shape(file.shape(name), name, shape, count);
            inputs[name] = file.tensor(name);
        };
        for (const EncryptedInput& input : interface.inputs) {
            read(input.name, input.shape);
        }
        for (const PublicInput& input : interface.publics) {
            read(input.name, input.shape);
        }
        const auto [query, doubt] = client.encrypt(inputs, options.given("--unchecked"));
        if (!doubt.empty()) {
            std::cerr << printable("warning: " + file.path() + ": " + doubt +
                                   ": the answers may be wrong")
                      << '\n';
        }
        // What atlasc embed knows of the inputs comes before what can be seen of them here.
        const std::string embedded = file.fact("doubt");
        Ledger(folder_of(options["--key"]))
            .add({query.query, interface.identity, query.count},
                 embedded.empty() ? doubt : embedded);
        write_message(options["--output"], "query", interface, client.engine(), query);
    } catch (Error& error) {
        error.where = error.where.empty() ? file.path() : error.where;
        throw;
    }
    warn_of_simulation();
}

/// "33% of row 1, 100% of row 4", the first few of many.
std::string rows_text(const std::map<std::size_t, double>& refused) {
    constexpr std::size_t most = 10;
    std::string text;
    std::size_t shown = 0;
    for (const auto& [row, share] : refused) {
        if (shown == most) {
            return text + " and " + std::to_string(refused.size() - shown) + " more";
        }
        text += (shown++ == 0 ? "" : ", ") +
                std::to_string(std::max(std::lround(100.0 * share), 1L)) + "% of row " +
                std::to_string(row);
    }
    return text;
}

/// What an answer decrypts to; the ledger knows of a refusal before the user does.
Tensors decrypted(const Client& client, const Message& answer, bool unchecked, Ledger& ledger,
                  const Ledger::Entry& entry) {
    const auto refused = [&] {
        ledger.refuse(entry);
        return "these keys refused " + std::to_string(ledger.refusals()) + " answers; after " +
               std::to_string(Ledger::most_refusals) + " they are not used any more";
    };
    Answers found;
    try {
        found = client.decrypt(answer);
    } catch (Error& error) {  // it decrypts to nothing
        error.why += (error.why.empty() ? "" : "; ") + refused();
        throw;
    }
    if (!found.refused.empty()) {
        const std::string budget = refused();
        const std::string what =
            "the answer is outside the range of the calibration, or copies in it differ";
        if (unchecked) {
            std::cerr << "warning: " << what << ": " << budget << '\n';
            return found.outputs;
        }
        Error error(what, rows_text(found.refused) + "; " + budget,
                    "the inputs are unlike those of the calibration, or the server computed "
                    "something else; the option --unchecked writes the answer all the same. Do not "
                    "tell the server");
        error.exit_code = Error::outside_range;
        throw error;
    }
    return found.outputs;
}

void decrypt(const Options& options, const Interface& interface) {
    require_new(options["--output"]);
    const Client client(interface, options["--key"]);
    const Engine& engine = client.engine();
    const auto most = [&engine](int level) { return engine.saved_size(level); };
    // Read once: the ledger has the digest of the very bytes that are decrypted.
    const TensorFile file(PlainFile(options["--answer"], message_bytes(interface, most)));
    SerializedMessage read = read_message(file, "answer", interface, most);
    const Ledger::Entry entry{read.query, interface.identity, read.count, read.digest};
    const Message answer = deserialized(std::move(read), interface, engine);
    // Before anything is decrypted: what a server learns from the rest, it learns once a query.
    Ledger ledger(folder_of(options["--key"]));
    ledger.answer(entry);
    TensorWriter writer({{"program", interface.identity}});
    for (const auto& [name, tensor] :
         decrypted(client, answer, options.given("--unchecked"), ledger, entry)) {
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
