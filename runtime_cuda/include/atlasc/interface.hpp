// What client and server of a compiled program agree on.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atlasc/context.hpp"
#include "atlasc/layout.hpp"

namespace atlasc {

/// The moduli of an engine that encrypts; sizes in bits.
struct Moduli {
    std::vector<int> primes;   ///< of Q: what is left at level 0, then one for each level upwards
    std::vector<int> special;  ///< of P
    int scale;                 ///< log2 of the scale of the program's ciphertexts
    /// log2 of the scale at each level of parameters that bootstrap by a record; empty for others.
    std::vector<double> log_scales{};
};

/// What an engine is made for.
struct Parameters {
    std::size_t slots;
    int max_level;                       ///< products that a fresh ciphertext allows
    std::optional<int> bootstrap_level;  ///< the same after a bootstrap, where there is one
    int bootstrap_batch;                 ///< ciphertexts that one bootstrap refreshes
    std::optional<Moduli> moduli{};      ///< nothing: whatever the engine's library has

    /// Whether they bootstrap by a record.
    bool bootstraps() const { return moduli && !moduli->log_scales.empty(); }

    /// As a line that keys are compared by.
    std::string text() const;
};

/// Evaluation keys of a program: levels are -1 where no key is needed.
struct KeyPlan {
    std::map<std::size_t, int> rotations;  ///< amount to the left -> highest level of its key
    int relinearisation_level;
    int conjugation_level;
};

/// A tensor that the client encrypts: [batch, tokens, features] or [batch, features].
struct EncryptedInput {
    std::string name;
    std::vector<std::size_t> shape;
    Layout layout;
    int level;
    double factor;  ///< the values are multiplied by it
    bool centred;   ///< before that, the mean of the last axis is subtracted
    /// The greatest of what is encrypted, as far as calibration saw; nothing: it was not measured.
    std::optional<double> magnitude{};
};

/// A mask that the server sees, of zeros and ones: [batch, tokens].
struct PublicInput {
    std::string name;
    std::vector<std::size_t> shape;
};

/// A result: the client multiplies by `factor` and adds `shift`, one number or one a feature.
struct Output {
    std::string name;
    std::vector<std::size_t> shape;
    Layout layout;
    std::vector<double> factor;
    std::vector<double> shift;
    int level;
    std::optional<double> magnitude{};  ///< of the answer, after factor and shift; as of an input
    /// A bound on the root mean square of the error that encryption adds to the answer; nothing: none is
    /// known.
    std::optional<double> noise{};
};

/// Everything but the program itself.
struct Interface {
    std::string model;
    std::string identity;  ///< digest of the program and its weights
    Parameters parameters;
    KeyPlan keys;
    std::vector<EncryptedInput> inputs;
    std::vector<PublicInput> publics;
    std::vector<Output> outputs;
    std::vector<Array> weights{};  ///< exactly what the server's file of weights holds
    std::size_t ops = 0;           ///< functions that an execution calls
    std::uint64_t memory = 0;      ///< bytes that an execution takes beside keys, as predicted

    /// Inputs that one execution answers.
    std::size_t batch() const { return inputs.at(0).shape.at(0); }
};

/// Ciphertexts by the name of the input or output.
using Values = std::map<std::string, Ciphertexts>;

/// A compiled program: encrypted outputs of encrypted inputs.
using Program = Values (*)(Context& context, Values inputs);

}  // namespace atlasc
