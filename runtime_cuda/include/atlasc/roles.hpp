// Client and server of a compiled program: as executables, which exchange files, and in a process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "atlasc/base/drafts.hpp"
#include "atlasc/engine.hpp"
#include "atlasc/interface.hpp"

namespace atlasc {

/// The client: `keygen`, `encrypt`, `decrypt`. Returns the exit code: 2 for a user's mistake.
int client_main(int argc, char** argv, const Interface& interface);

/// The server: executes the program on a query. It never sees a secret key.
int server_main(int argc, char** argv, const Interface& interface, Program program);

/// A query or an answer.
struct Message {
    Values values;
    std::map<std::string, Tensor> publics;  ///< of a query
    std::size_t count;                      ///< inputs of the batch that are real
    std::string query;                      ///< 128 random bits, of a query and of its answer
    std::string doubt{};                    ///< of a query, for the ledger: see `Ledger::add`
};

/// Make a folder with secret.key, evaluation.key and an empty ledger; all files or no folder.
/// Throws Error.
void make_keys(const Interface& interface, const std::string& folder);

/// What a client does with its secret key.
class Client {
public:
    /// `key`: the file of the secret key. From now on the process leaves no core dump. Throws Error.
    Client(const Interface& interface, const std::string& key);

    /// Encrypts inputs by name, [count, ...] of 1 to a batch; `source` names them in messages.
    /// Throws Error, before anything is encrypted: an input is missing, of another shape, not finite
    /// or, unless `unchecked`, far above what calibration saw; a mask has another number than 0 and
    /// 1, or nothing but padding. Warns on standard error of other numbers above those of the
    /// calibration.
    Message encrypt(const std::map<std::string, Tensor>& inputs, const std::string& source,
                    bool unchecked = false) const;

    /// The answers [count, ...] by name. Throws Error, with an exit code of its own, for numbers
    /// that calibration never came near and for copies that differ, unless `unchecked`. `refused` is
    /// called before, and also where such numbers are returned all the same.
    std::map<std::string, Tensor> decrypt(const Message& answer, bool unchecked = false,
                                          const std::function<void()>& refused = {}) const;

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

/// A message in ciphertexts of another engine with the same keys.
Message moved(const Message& message, const Engine& from, const Engine& to);

/// Write a query or an answer (`kind`) as a new file.
void write_message(const std::string& path, const std::string& kind, const Interface& interface,
                   const Engine& engine, const Message& message);

/// Most bytes of a message of this program, a query or an answer.
std::uint64_t message_bytes(const Interface& interface, const Engine& engine);

/// Read one of this program and of the engine's keys; throws Error for any other file, before it
/// reads more than the interface has.
Message read_message(const TensorFile& file, const std::string& kind, const Interface& interface,
                     const Engine& engine);

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
