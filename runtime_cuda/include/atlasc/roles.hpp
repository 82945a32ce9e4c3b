// Client and server of a compiled program: as executables, which exchange files, and in a process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "atlasc/base/drafts.hpp"
#include "atlasc/client_data.hpp"
#include "atlasc/engine.hpp"
#include "atlasc/interface.hpp"
#include "atlasc/ledger.hpp"
#include "atlasc/messages.hpp"
#include "atlasc/sharing.hpp"

namespace atlasc {

/// The client: `keygen`, `encrypt`, `decrypt`. Returns the exit code: 2 for a user's mistake.
int client_main(int argc, char** argv, const Interface& interface);

/// The server: executes the program on a query. It never sees a secret key.
int server_main(int argc, char** argv, const Interface& interface, Program program);

/// Make a folder with secret.key, evaluation.key and an empty ledger; all files or no folder.
/// Throws Error.
void make_keys(const Interface& interface, const std::string& folder);

/// The query of packed inputs, under a new name.
Message encrypted(Packed inputs, const Interface& interface, Engine& engine);

/// The slots of an answer. Throws Error where it decrypts to nothing.
NamedSlots decrypted(const Message& answer, const Interface& interface, Engine& engine);

/// Decrypts the answer at hand, with any engine. Throws Error where it decrypts to nothing.
using Decrypt = std::function<NamedSlots()>;

/// Loads the ciphertexts of the answer at hand; what decrypts them. Throws Error: as `deserialized`.
using LoadAnswer = std::function<Decrypt()>;

/// Answers that may be passed on, with noise and rounded; none of a batch in which one is refused.
struct SharedAnswers : Answers {
    Floods floods;           ///< the noise of each output
    std::size_t number = 0;  ///< answers that these keys have shared, this one included
};

/// What a client does with an answer, step by step. The ledger notes the answer before anything is
/// decrypted: what a server learns from the rest, it learns once a query. And it notes a refusal before
/// the user hears of it. It stays locked meanwhile, so that of answers that come together no more are
/// refused than a key may refuse. Throws Error: as `Ledger::answer`, as `load`, and of what it gives.
Answers decrypt_answer(Ledger& ledger, const Ledger::Entry& answer, const Interface& interface,
                       const LoadAnswer& load);

/// The same for numbers that are passed on. Throws Error also as `require_digits` and `Ledger::share`,
/// before anything is decrypted.
SharedAnswers share_answer(Ledger& ledger, const Ledger::Entry& answer, const Interface& interface,
                           const LoadAnswer& load, const Sharing& sharing);

/// What a client does with its secret key. Queries and answers are bytes, those of their files; the
/// ledger beside the key knows of each.
class Client {
public:
    struct Query {
        Bytes bytes;
        std::string doubt;  ///< see `Packed`
    };

    /// `key`: the file of the secret key. From now on the process leaves no core dump. Throws Error.
    Client(const Interface& interface, const std::string& key);

    /// Encrypts inputs by name; throws Error as `packed`, before anything is encrypted. `doubt`: what
    /// is known of the inputs besides; it comes first.
    Query encrypt(const Tensors& inputs, bool unchecked = false, const std::string& doubt = "");

    /// The answers by name, and which of them cannot be right. Throws Error: the answer of another
    /// program or of other keys, or to another query; a second answer to a query; damaged bytes; too
    /// many answers to queries of this key were refused.
    Answers decrypt(PlainFile answer);

    /// Answers that may be passed on. Nothing of a batch is shared in which one answer is refused.
    /// Throws Error: as `decrypt`; the bound on the errors leaves no digit, or may not hold for this
    /// query; the budget is spent.
    SharedAnswers share(PlainFile answer, const Sharing& sharing = {});

    /// Answers that were refused, of `Ledger::most_refusals`.
    std::size_t refusals() const;

private:
    struct Received {
        Ledger::Entry entry;
        LoadAnswer load;
    };

    Received received(PlainFile answer);

    const Interface& interface_;
    std::string folder_;
    std::unique_ptr<Engine> engine_;
};

/// How much of the budget of refused answers is spent, in words.
std::string budget_text(std::size_t refusals);

/// What a server does with the evaluation keys. Several threads may use one.
class Server {
public:
    /// `keys`, `weights`: files, or their bytes, which must live as long if they are a view; no weights
    /// for a program that has none. `device_memory`: as for `Backend::server_engine`. Throws Error:
    /// the files are not those of the program.
    Server(const Interface& interface, Program program, PlainFile keys,
           std::optional<PlainFile> weights = std::nullopt, std::uint64_t device_memory = 0);

    /// The answer to a query, as bytes.
    Bytes execute(PlainFile query);

    /// Returns when the answer is computed. `clock`: follows the ops.
    Message execute(Message query, Clock* clock = nullptr);

    Engine& engine() const { return *engine_; }

private:
    const Interface& interface_;
    Program program_;
    TensorFile weights_;
    std::shared_ptr<const Record> record_;
    std::unique_ptr<Engine> engine_;
};

/// Options of a command line, each of which takes a value, but for flags.
class Options {
public:
    /// Reads argv[first], ...; throws Error with the usage for anything but the wanted options,
    /// which must be given, and the optional ones.
    Options(int argc, char** argv, int first, const std::string& usage,
            const std::vector<std::string>& wanted,
            const std::vector<std::string>& optional = {},
            const std::vector<std::string>& flags = {});

    const std::string& operator[](const std::string& name) const { return values_.at(name); }
    bool given(const std::string& name) const { return values_.count(name) > 0; }

    /// A whole number of at most nine digits, of an option that was given. Throws Error.
    std::int64_t number(const std::string& name) const;

    /// A size such as 40G or 800M in bytes, 0 where the option was not given. Throws Error.
    std::uint64_t size(const std::string& name) const;

private:
    std::map<std::string, std::string> values_;
};

/// Runs a command and reports what it throws; the exit code.
int reported(const std::function<void()>& command);

}  // namespace atlasc
