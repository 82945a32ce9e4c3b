// The commands of the client.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <utility>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"
#include "atlasc/ledger.hpp"
#include "atlasc/program_file.hpp"
#include "atlasc/roles.hpp"

namespace atlasc {
namespace {

constexpr const char* client_usage =
    "client --program bundle COMMAND, where the commands are: keygen --output keys | "
    "encrypt --key keys/secret.key --input inputs.safetensors --output query [--unchecked] | "
    "decrypt --key keys/secret.key --answer answer --output outputs.safetensors "
    "[--unchecked | --share [--bits 30] [--shares 1]]";

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
              << folder << "/evaluation.key: evaluation keys; for the server\n"
              << "the server sees in the clear: ";
    for (const PublicInput& input : interface.publics) {
        std::cerr << printable(input.name) << (input.name == position_name
                                        ? ": the place of a token; "
                                        : ": which places of a text are tokens, and so its length; ");
    }
    std::cerr << "the number and time of inputs\n";
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

/// Throws Error for answers that were refused, or warns of them.
void tell_refused(const Answers& found, const Client& client, bool unchecked) {
    if (found.refused.empty()) {
        return;
    }
    const std::string what =
        "the answer is outside the range of the calibration, or copies in it differ";
    if (!unchecked) {
        Error error(what, rows_text(found.refused) + "; " + budget_text(client.refusals()),
                    "the inputs are unlike those of the calibration, or the server computed "
                    "something else; the option --unchecked writes the answer all the same. Do "
                    "not tell the server");
        error.exit_code = Error::outside_range;
        throw error;
    }
    std::cerr << "warning: " << what << ": " << budget_text(client.refusals()) << '\n';
}

/// Throws Error for an option beside which another one says nothing.
Sharing sharing_of(const Options& options) {
    const bool share = options.given("--share");
    if (share && options.given("--unchecked")) {
        throw Error("--share and --unchecked exclude each other",
                    "the bound on the errors does not hold for such an answer",
                    "leave one of them out");
    }
    Sharing sharing;
    for (const auto& [option, number] : {std::pair<const char*, std::int64_t&>
                                             {"--bits", sharing.bits},
                                         {"--shares", sharing.shares}}) {
        if (options.given(option)) {
            if (!share) {
                throw Error(std::string(option) + " is for --share alone", "",
                            "give --share as well, or leave it out");
            }
            number = options.number(option);
        }
    }
    return sharing;
}

void tell_shared(const SharedAnswers& found, const Sharing& sharing) {
    for (const auto& [name, flood] : found.floods) {
        std::cerr << "note: " << name << ": " << flood.digits
                  << (flood.digits == 1 ? " digit is" : " digits are")
                  << " left and may be passed on, at " << sharing.bits << " bits\n  noise of "
                  << short_text(flood.deviation, 2)
                  << " hides the error of encryption; answer " << found.number << " of "
                  << sharing.shares << " that these keys share\n";
    }
}

void write_outputs(const std::string& path, const Tensors& outputs, const Interface& interface) {
    TensorWriter writer({{"program", interface.identity}});
    for (const auto& [name, tensor] : outputs) {
        writer.add(name, tensor);
    }
    writer.write(path, Access::secret);
}

void decrypt(const Options& options, const Interface& interface) {
    require_new(options["--output"]);
    const Sharing sharing = sharing_of(options);
    Client client(interface, options["--key"]);
    if (!options.given("--share")) {
        const Answers found = client.decrypt(options["--answer"]);
        tell_refused(found, client, options.given("--unchecked"));
        write_outputs(options["--output"], found.outputs, interface);
        return;
    }
    const SharedAnswers found = client.share(options["--answer"], sharing);
    tell_refused(found, client, false);
    write_outputs(options["--output"], found.outputs, interface);
    tell_shared(found, sharing);
}

void follow(int argc, char** argv, const Interface& interface) {
    const std::string command = argc > 1 ? argv[1] : "";
    if (command == "keygen") {
        keygen(Options(argc, argv, 2, client_usage, {"--output"}), interface);
    } else if (command == "encrypt") {
        encrypt(Options(argc, argv, 2, client_usage, {"--key", "--input", "--output"}, {},
                        {"--unchecked"}),
                interface);
    } else if (command == "decrypt") {
        decrypt(Options(argc, argv, 2, client_usage, {"--key", "--answer", "--output"},
                        {"--bits", "--shares"}, {"--unchecked", "--share"}),
                interface);
    } else {
        throw Error("which command?", "", client_usage);
    }
}

}  // namespace

int client_main(int argc, char** argv) {
    return reported([&] {
        if (argc < 3 || std::string(argv[1]) != "--program") {
            throw Error("of which program?", "", client_usage);
        }
        const std::string path = part_of(argv[2], "client/interface.safetensors");
        const Interface interface =
            read_interface(TensorFile(path, TensorFile::large_header));
        follow(argc - 2, argv + 2, interface);
    });
}

}  // namespace atlasc
