// Compiled programs in files, as atlasc writes them: a server's and a client's part of a bundle.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "atlasc/base/tensor_file.hpp"
#include "atlasc/context.hpp"
#include "atlasc/interface.hpp"

namespace atlasc {

/// The file of a role in a bundle, or the path itself if it is no folder.
std::string part_of(const std::string& bundle, const std::string& file);

/// The interface in a client's file, `client/interface.safetensors` of a bundle. Throws Error: the
/// file is damaged or has another format.
Interface read_interface(const TensorFile& file);

/// A server's file, `server/program.safetensors` of a bundle: the interface and the calls. The
/// functions and the weights stay in the file, where `Server` reads them.
class StoredProgram {
public:
    /// A call of one function; its result is the next value, after all inputs.
    struct Call {
        std::string name;  ///< name of the op in the IR
        std::string kind;  ///< kind of the op, as reports group it
        std::string place;         ///< module of the model
        std::optional<int> layer;  ///< number of the Transformer block, if there is one
        std::string function;
        std::vector<std::string> arrays;
        std::vector<std::size_t> operands;  ///< numbers of values
        double seconds;                     ///< predicted
    };

    /// Throws Error: the file is damaged, or has another format; or a call is of a function, an array
    /// or a value that is not there.
    explicit StoredProgram(const TensorFile& file);

    const Interface& interface() const { return interface_; }
    const std::vector<Call>& calls() const { return calls_; }

    /// Numbers of the outputs' values, in the interface's order.
    const std::vector<std::size_t>& outputs() const { return outputs_; }

    /// Whether seconds of calls are those of a cost table, and not relative costs.
    bool measured() const { return measured_; }

    /// Refuse (Error) a program that keeps state from run to run: these servers answer single queries.
    void require_no_state() const;

    /// Refuse (Error) any file but the one whose text has this SHA-256: calls that were compiled are a
    /// view of that file.
    void require_text(const std::string& sha256) const;

    /// Encrypted outputs of encrypted inputs: a `Program`.
    Values execute(Context& context, Values inputs) const;

private:
    void read(const TensorFile& file);

    std::string file_;  ///< its name, and the SHA-256 of its text
    std::string text_;
    bool measured_ = false;
    Interface interface_;
    std::vector<Call> calls_;
    std::vector<std::size_t> outputs_;
    std::vector<std::size_t> last_;     ///< for each value the call that reads it last, or `kept`
};

}  // namespace atlasc
