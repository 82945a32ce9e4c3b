// Client and server of a compiled program: as executables that exchange files, and in a process.
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

/// The client of any compiled program, whose bundle `--program` names before the command: `keygen`,
/// `encrypt`, `decrypt`. Returns the exit code, which is 2 for a user's mistake.
int client_main(int argc, char** argv);

/// The server of any compiled program, whose bundle `--program` names: executes it on a query. It
/// never sees a secret key.
int server_main(int argc, char** argv);

/// The same with calls that were compiled, of the one file whose text has this SHA-256.
int server_main(int argc, char** argv, const Program& program, const std::string& text);

/// Make a folder with secret.key, evaluation.key and an empty ledger: either all files or no
/// folder. Throws Error.
void make_keys(const Interface& interface, const std::string& folder);

/// The query of packed inputs, with a new name.
Message encrypted(Packed inputs, const Interface& interface, Engine& engine);

/// The decrypted slots of an answer. Throws Error if the answer cannot be decrypted.
NamedSlots decrypted(const Message& answer, const Interface& interface, Engine& engine);

/// Decrypts the answer at hand, with any engine. Throws Error if the answer cannot be decrypted.
using Decrypt = std::function<NamedSlots()>;

/// Loads the ciphertexts of the answer at hand and returns the function that decrypts them. Throws Error:
/// as `deserialized`.
using LoadAnswer = std::function<Decrypt()>;

/// Answers that may be passed on, with noise and rounded. Empty if one answer of the batch is refused.
struct SharedAnswers : Answers {
    Floods floods;           ///< the noise of each output
    std::size_t number = 0;  ///< answers that these keys have shared, this one included
};

/// A client's steps with an answer. The ledger notes the answer before anything is decrypted, so that a
/// server learns from a decryption once for each query. The ledger notes a refusal before the user hears
/// of it. It stays locked during the steps, so that answers that arrive together cannot exceed the number
/// of refusals that a key allows. Throws Error: as `Ledger::answer`, as `load`, and as the function that
/// `load` returns.
Answers decrypt_answer(Ledger& ledger, const Ledger::Entry& answer, const Interface& interface,
                       const LoadAnswer& load);

/// The same for numbers that are passed on. Throws Error also as `require_digits` and `Ledger::share`,
/// before anything is decrypted.
SharedAnswers share_answer(Ledger& ledger, const Ledger::Entry& answer, const Interface& interface,
                           const LoadAnswer& load, const Sharing& sharing);

/// A client with its secret key. Queries and answers are the bytes of their files. The ledger
/// beside the key notes each of them.
class Client {
public:
    struct Query {
        Bytes bytes;
        std::string doubt;  ///< see `Packed`
    };

    /// `key`: file of the secret key. From now on the process leaves no core dump. Throws Error.
    Client(Interface interface, const std::string& key);

    /// Encrypt inputs by name. Throws Error as `packed`, before anything is encrypted. `doubt`: a
    /// known reason for doubt about the inputs, which takes precedence.
    Query encrypt(const Tensors& inputs, bool unchecked = false, const std::string& doubt = "");

    /// The answers by name, and which of them cannot be right. Throws Error: the answer belongs to
    /// another program, other keys or another query; the query has an answer already; bytes are
    /// damaged; or too many answers to queries of this key were refused.
    Answers decrypt(PlainFile answer);

    /// Answers that may be passed on. If one answer of a batch is refused, none of the batch is shared.
    /// Throws Error: as `decrypt`; the bound on the errors leaves no digit, or may not hold for this
    /// query; the budget is spent.
    SharedAnswers share(PlainFile answer, const Sharing& sharing = {});

    /// Number of refused answers, out of `Ledger::most_refusals`.
    std::size_t refusals() const;

private:
    struct Received {
        Ledger::Entry entry;
        LoadAnswer load;
    };

    Received received(PlainFile answer);

    Interface interface_;
    std::string folder_;
    std::unique_ptr<Engine> engine_;
};

/// A sentence on how much of the budget of refused answers is spent.
std::string budget_text(std::size_t refusals);

/// A server with its evaluation keys. Several threads may use one server.
class Server {
public:
    /// `keys`, `weights`: files, or their bytes, which must outlive the server if they are a view;
    /// no weights for a program without any. `device_memory`: as for `Backend::server_engine`.
    /// Throws Error: the files do not belong to the program.
    Server(Interface interface, Program program, PlainFile keys,
           std::optional<PlainFile> weights = std::nullopt, std::uint64_t device_memory = 0);

    /// The answer to a query, as bytes.
    Bytes execute(PlainFile query);

    /// Compute the answer. `clock`: follows the ops.
    Message execute(Message query, Clock* clock = nullptr);

    Engine& engine() const { return *engine_; }

private:
    Interface interface_;
    Program program_;
    TensorFile weights_;
    std::shared_ptr<const Record> record_;
    std::unique_ptr<Engine> engine_;
};

/// Options of a command line; each takes a value, except flags.
class Options {
public:
    /// Reads argv[first], ... Throws Error with the usage for anything but the required options,
    /// which must be given, and the optional ones.
    Options(int argc, char** argv, int first, const std::string& usage,
            const std::vector<std::string>& wanted,
            const std::vector<std::string>& optional = {},
            const std::vector<std::string>& flags = {});

    const std::string& operator[](const std::string& name) const { return values_.at(name); }
    bool given(const std::string& name) const { return values_.count(name) > 0; }

    /// A whole number of at most nine digits, of an option that was given. Throws Error.
    std::int64_t number(const std::string& name) const;

    /// A size such as 40G or 800M in bytes; 0 if the option was not given. Throws Error.
    std::uint64_t size(const std::string& name) const;

private:
    std::map<std::string, std::string> values_;
};

/// Run a command, report its errors, and return the exit code.
int reported(const std::function<void()>& command);

}  // namespace atlasc
