// One execution of a program, as generated code sees it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "atlasc/base/tensor_file.hpp"
#include "atlasc/clock.hpp"
#include "atlasc/engine.hpp"
#include "atlasc/record.hpp"

namespace atlasc {

/// The state of one execution.
class Context {
public:
    /// `publics`: inputs that the server sees in the clear, by name.
    Context(Engine& engine, const Record& record, const TensorFile& weights,
            const std::map<std::string, Tensor>& publics, Clock* clock = nullptr)
        : engine_(engine), record_(record), weights_(weights), publics_(publics), clock_(clock) {}

    /// Set the module of the model that the next ops come from, for messages.
    void at(const char* place) { place_ = place; }
    const std::string& place() const { return place_; }

    /// For a program that is written by hand.
    Engine& engine() const { return engine_; }

    /// The result of a function of the record. `arrays`: names of weights, or of a public input.
    /// Operands are passed by value: a caller that moves its last use in frees the ciphertexts with
    /// the op.
    template <typename... Operands>
    Ciphertexts call(const char* function, const std::vector<std::string>& arrays,
                     Operands... operands) {
        std::vector<Ciphertexts> given;
        (given.push_back(std::move(operands)), ...);
        return play(function, arrays, std::move(given));
    }

    /// The same with any number of operands. Throws Error also for arrays other than it takes.
    Ciphertexts play(const std::string& function, const std::vector<std::string>& arrays,
                     std::vector<Ciphertexts> operands);

private:
    Engine& engine_;
    const Record& record_;
    const TensorFile& weights_;
    const std::map<std::string, Tensor>& publics_;
    Clock* clock_;
    std::string place_;
};

}  // namespace atlasc
