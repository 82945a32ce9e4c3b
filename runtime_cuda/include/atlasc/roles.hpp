// Client and server of a compiled program: as executables, which exchange files, and in a process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "atlasc/base/drafts.hpp"
#include "atlasc/client_data.hpp"
#include "atlasc/engine.hpp"
#include "atlasc/interface.hpp"
#include "atlasc/messages.hpp"

namespace atlasc {

/// The client: `keygen`, `encrypt`, `decrypt`. Returns the exit code: 2 for a user's mistake.
int client_main(int argc, char** argv, const Interface& interface);

/// The server: executes the program on a query. It never sees a secret key.
int server_main(int argc, char** argv, const Interface& interface, Program program);

/// Make a folder with secret.key, evaluation.key and an empty ledger; all files or no folder.
/// Throws Error.
void make_keys(const Interface& interface, const std::string& folder);

/// What a client does with its secret key.
class Client {
public:
    /// `key`: the file of the secret key. From now on the process leaves no core dump. Throws Error.
    Client(const Interface& interface, const std::string& key);

    /// What a client sends, and why the bound on the errors of the answer may not hold; see `Packed`.
    struct Query {
        Message message;
        std::string doubt;
    };

    /// Encrypts inputs by name; throws Error as `packed`, before anything is encrypted.
    Query encrypt(const Tensors& inputs, bool unchecked = false) const;

    /// The answers by name, and which of them cannot be right. Throws Error for what decrypts to
    /// nothing.
    Answers decrypt(const Message& answer) const;

    const Engine& engine() const { return *engine_; }

private:
    const Interface& interface_;
    std::unique_ptr<Engine> engine_;
};

/// What a server does with the evaluation keys.
class Server {
public:
    /// `keys`, `weights`: files; `device_memory` as for `Backend::server_engine`. Throws Error: the
    /// files are not those of the program.
    Server(const Interface& interface, Program program, const std::string& keys,
           const std::string& weights, std::uint64_t device_memory = 0);

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

    /// A size such as 40G or 800M in bytes, 0 where the option was not given. Throws Error.
    std::uint64_t size(const std::string& name) const;

private:
    std::map<std::string, std::string> values_;
};

/// Runs a command and reports what it throws; the exit code.
int reported(const std::function<void()>& command);

}  // namespace atlasc
