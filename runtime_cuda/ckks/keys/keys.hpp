// The keys of a program: which ones, and to which level.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atlasc/backend.hpp"
#include "ckks/keys/key_switch.hpp"

namespace atlasc::ckks {

/// Rotations whose sum a raised ciphertext may be: engine.hpp.
constexpr int log_raised_copies = 4;
constexpr std::size_t raised_copies = std::size_t{1} << log_raised_copies;

/// What a server computes with.
struct EvaluationKeys {
    std::optional<SwitchKey> relinearisation;
    std::optional<SwitchKey> conjugation;
    std::map<std::size_t, SwitchKey> rotations;  ///< by amount to the left
    /// The two switches around the raising of the modulus (Bossuat, Troncoso-Pastoriza and Hubaux
    /// 2022, section 3): from the dense secret to a sparse one, modulo q_0 and the first special
    /// prime alone, and back at the top level, where what was raised is still as small as a digit.
    /// And back for the mean of copies, whose digits are the parts that raise.hpp names.
    std::optional<SwitchKey> to_sparse;
    std::optional<SwitchKey> to_dense;
    std::optional<SwitchKey> copies_to_dense;
};

/// What a program needs: the highest level of each key, -1 for none.
struct KeyNeeds {
    int relinearisation = -1;
    int conjugation = -1;
    std::map<std::size_t, int> rotations;
    bool raising = false;
    Derivation derivation{};
};

/// Those of the program and of its bootstrap. Throws Error: a key cannot be derived as it says.
KeyNeeds needs_of(const Interface& interface);

/// One of the keys, of `limbs` primes of Q and some special ones.
struct KeyEntry {
    enum class Kind { relinearisation, conjugation, rotation, to_sparse, to_dense, copies_to_dense };

    Kind kind;
    std::size_t amount;  ///< of a rotation
    std::size_t limbs;
    std::size_t special;
    std::size_t digits;
    std::uint32_t number;  ///< among the keys that were made together
    std::string name;      ///< in files

    Packing packing(const Chain& chain) const { return {chain, limbs, special}; }
    /// Of both parts.
    std::size_t words(const Chain& chain) const { return 2 * digits * packing(chain).words(); }
};

/// All keys that a client makes, in a fixed order; roots come after them.
std::vector<KeyEntry> entries_of(const KeyNeeds& needs, const Chain& chain);

/// The roots that a client makes, on the chain `roots`; the first one has the number `first`.
std::vector<KeyEntry> roots_of(const KeyNeeds& needs, const Chain& roots, std::size_t first);

/// A rotation key without a number.
KeyEntry rotation_of(const Chain& chain, std::size_t amount, int level);

/// Gives keys the numbers with which they were made: their places in that order among all keys of a
/// file, which may have more than a program needs.
void number_by(std::vector<std::string> names, std::vector<KeyEntry>& entries);

/// Puts the words of a key where its kind belongs.
void keep(EvaluationKeys& keys, const KeyEntry& entry, SwitchKey key);

}  // namespace atlasc::ckks
