// The interface between client and server of a compiled program.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atlasc/context.hpp"
#include "atlasc/layout.hpp"

namespace atlasc {

/// The moduli of an engine that encrypts; sizes are in bits.
struct Moduli {
    std::vector<int> primes;   ///< of Q: at level 0, then one for each level upwards
    std::vector<int> special;  ///< of P
    int scale;                 ///< log2 of the scale of the program's ciphertexts
    /// log2 of the scale at each level, for parameters that bootstrap by a record; otherwise empty.
    std::vector<double> log_scales{};
};

/// Parameters of an engine.
struct Parameters {
    std::size_t slots;
    int max_level;                       ///< level of a fresh ciphertext
    std::optional<int> bootstrap_level;  ///< level after a bootstrap, if there is one
    int bootstrap_batch;                 ///< ciphertexts that one bootstrap refreshes
    std::optional<Moduli> moduli{};      ///< nothing: the moduli of the engine's library

    /// Whether the engine bootstraps by a record.
    bool bootstraps() const { return moduli && !moduli->log_scales.empty(); }

    /// The parameters as a line of text, by which keys are compared.
    std::string text() const;
};

/// Rotation keys that a server derives from others: ckks/keys/derived_keys.hpp.
struct Derivation {
    int level = -1;  ///< the highest one of a derived key
    int last = -1;   ///< roots divide by the primes of the levels above it, up to this one
    std::map<std::size_t, std::size_t> roots{};  ///< derived amount -> amount of its root
};

/// Evaluation keys of a program: a level is -1 if the key is not needed.
struct KeyPlan {
    std::map<std::size_t, int> rotations;  ///< amount to the left -> highest level of its key
    int relinearisation_level = -1;
    int conjugation_level = -1;
    Derivation derivation{};
};

/// A tensor that the client encrypts: [batch, tokens, features] or [batch, features].
struct EncryptedInput {
    std::string name;
    std::vector<std::size_t> shape;
    Layout layout;
    int level;
    double factor;  ///< the client multiplies the values by it
    bool centred;   ///< before that, it subtracts the mean of the last axis
    /// Greatest magnitude of the encrypted values in the calibration; nothing if not measured.
    std::optional<double> magnitude{};
    bool state = false;    ///< whether the server keeps it from run to run, and no client sends it
    std::string prefix{};  ///< array with the state before the first run, where it is not empty
};

/// A mask of zeros and ones that the server sees: [batch, tokens].
struct PublicInput {
    std::string name;
    std::vector<std::size_t> shape;
};

/// A result. The client multiplies by `factor` and adds `shift`: one number, or one per feature.
struct Output {
    std::string name;
    std::vector<std::size_t> shape;
    Layout layout;
    std::vector<double> factor;
    std::vector<double> shift;
    int level;
    std::optional<double> magnitude{};  ///< of the answer, after factor and shift, as for inputs
    /// Bound on the root mean square of the error that encryption adds to the answer, if one is known.
    std::optional<double> noise{};
    bool state = false;      ///< whether the server keeps it
    std::string function{};  ///< that ends the model's output, on the client; empty if there is none
};

/// Everything that both need to know, except the program itself.
struct Interface {
    std::string model;
    std::string identity;  ///< digest of the program and its weights
    Parameters parameters;
    KeyPlan keys;  ///< of the program and, where an engine has parameters for them, of bootstraps
    std::vector<EncryptedInput> inputs;
    std::vector<PublicInput> publics;
    std::vector<Output> outputs;
    std::vector<Array> weights{};  ///< exactly the arrays of the server's file
    std::size_t ops = 0;           ///< number of functions that an execution calls
    std::uint64_t memory = 0;      ///< predicted bytes of an execution without keys
    KeyPlan plan{};                ///< the keys of the program alone
    /// Name of the engine in files of keys and messages; empty: that of the engine that makes them.
    std::string engine{};

    /// The same for clients: without state.
    Interface of_messages() const;

    /// Whether a server keeps something from run to run: the step or the prefill of a decoder.
    bool keeps_state() const;

    /// Number of inputs that one execution answers.
    std::size_t batch() const { return inputs.at(0).shape.at(0); }
};

/// Name of an input or output -> ciphertexts.
using Values = std::map<std::string, Ciphertexts>;

/// A compiled program: maps encrypted inputs to encrypted outputs.
using Program = std::function<Values(Context& context, Values inputs)>;

}  // namespace atlasc
