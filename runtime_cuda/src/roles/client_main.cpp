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
    Client client(interface, options["--key"]);
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
        // What atlasc embed knows of the inputs comes before what can be seen of them here.
        const auto [query, doubt] =
            client.encrypt(inputs, options.given("--unchecked"), file.fact("doubt"));
        if (!doubt.empty()) {
            std::cerr << printable("warning: " + file.path() + ": " + doubt +
                                   ": the answers may be wrong")
                      << '\n';
        }
        write_new(options["--output"], query.data(), query.size(), Access::shared);
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

void decrypt(const Options& options, const Interface& interface) {
    require_new(options["--output"]);
    Client client(interface, options["--key"]);
    const Answers found = client.decrypt(options["--answer"]);
    if (!found.refused.empty()) {
        const std::string what =
            "the answer is outside the range of the calibration, or copies in it differ";
        if (!options.given("--unchecked")) {
            Error error(what, rows_text(found.refused) + "; " + budget_text(client.refusals()),
                        "the inputs are unlike those of the calibration, or the server computed "
                        "something else; the option --unchecked writes the answer all the same. Do "
                        "not tell the server");
            error.exit_code = Error::outside_range;
            throw error;
        }
        std::cerr << "warning: " << what << ": " << budget_text(client.refusals()) << '\n';
    }
    TensorWriter writer({{"program", interface.identity}});
    for (const auto& [name, tensor] : found.outputs) {
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
