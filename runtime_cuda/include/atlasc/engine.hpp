// The engine: arithmetic on ciphertexts, by which records are replayed.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "atlasc/base/error.hpp"
#include "atlasc/base/tensor_file.hpp"
#include "atlasc/gather.hpp"

namespace atlasc {

using ComplexVector = std::vector<std::complex<double>>;

/// Slots, real or complex. Fewer numbers than slots stand for runs of neighbouring slots, all
/// equally long.
using Numbers = std::variant<Vector, ComplexVector>;

/// Slots that are built when an engine needs them, as long as their sources live.
struct Deferred {
    std::uint64_t identity;  ///< the same for equal slots; 0 for slots that are used once
    std::function<Numbers()> make;
    /// How often the numbers that are made follow one another until every slot has one: an engine
    /// encodes those of a short period at a fraction of the cost.
    std::size_t repeats = 1;
    /// How `make` computes them, for a device that does it in its place; nothing where only `make`
    /// knows.
    std::function<GatherPlan()> plan{};
};

/// The other factor of a product: one number for all slots, or slots.
using Plaintext = std::variant<double, Vector, ComplexVector, Deferred>;

/// An identity that no other slots of this process have.
std::uint64_t new_identity();

/// Number of slots in a run. Throws Error if the number of numbers does not divide the slots.
inline std::size_t run_of(std::size_t numbers, std::size_t slots, const char* primitive) {
    if (numbers == 0 || slots % numbers != 0) {
        throw Error(std::string(primitive) + " is impossible",
                    "a vector has " + std::to_string(numbers) + " numbers, which do not divide " +
                        std::to_string(slots) + " slots");
    }
    return slots / numbers;
}

/// An engine's own data of a ciphertext: opaque to everything else.
struct CiphertextData {
    virtual ~CiphertextData() = default;
};

/// A handle. Ciphertexts never change, so handles may be copied freely.
using Ciphertext = std::shared_ptr<const CiphertextData>;
using Ciphertexts = std::vector<Ciphertext>;

/// One of several operands, rotated to the left.
struct BabyStep {
    std::size_t operand;
    std::size_t rotation;

    bool operator<(const BabyStep& other) const {
        return std::pair(operand, rotation) < std::pair(other.operand, other.rotation);
    }
};

/// Terms of a sum of products that share one rotation, which is done after the products.
struct GiantStep {
    std::size_t result;    ///< number of the result to which the rotated sum is added
    std::size_t rotation;  ///< of the sum, to the left
    std::map<BabyStep, Plaintext> terms;  ///< rotated operand -> factor
};

/// All baby steps of some giant steps.
std::set<BabyStep> baby_steps(const std::vector<GiantStep>& steps);

/// What a chained transform of `slots` slots rotates the sum of a giant step by, all later steps of its
/// result included: from the step before it to this one.
std::size_t chain_amount(const std::vector<GiantStep>& steps, std::size_t at, std::size_t slots);

class Record;
struct Backend;

/// Arithmetic on packed ciphertexts.
///
/// A level is the number of products that are left. Every product takes one: its result is
/// relinearized and rescaled. Operands at different levels are aligned to the lower one. Between
/// the ops of a program slots are real. Inside an op a kernel may use the imaginary part, but must
/// leave none behind. Whatever is impossible (a product at level 0, a missing key) throws Error.
/// Several threads may use one engine.
class Engine {
public:
    Engine() = default;
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    virtual ~Engine() = default;

    virtual const Backend& backend() const = 0;

    /// Identity of the key pair; every ciphertext carries it in files.
    virtual const std::string& identity() const = 0;

    /// Number of slots of a ciphertext, a power of two.
    virtual std::size_t slots() const = 0;

    virtual Ciphertext encrypt(const Vector& vector, int level) = 0;

    /// The real parts of the slots; needs the secret key.
    virtual Vector decrypt(const Ciphertext& x) = 0;

    virtual int level(const Ciphertext& x) const = 0;

    virtual Ciphertext add(const Ciphertext& left, const Ciphertext& right) = 0;
    virtual Ciphertext sub(const Ciphertext& left, const Ciphertext& right) = 0;
    virtual Ciphertext negate(const Ciphertext& x) = 0;
    virtual Ciphertext add_plain(const Ciphertext& x, const Plaintext& value) = 0;

    virtual Ciphertext mul(const Ciphertext& left, const Ciphertext& right) = 0;
    virtual Ciphertext square(const Ciphertext& x) = 0;

    /// The sum of left * right over at least one pair, relinearized once.
    virtual Ciphertext dot(const Ciphertexts& lefts, const Ciphertexts& rights) = 0;
    virtual Ciphertext mul_plain(const Ciphertext& x, const Plaintext& value) = 0;

    /// The sum of x * value over at least one pair. A device encodes, adds and reduces them at
    /// once.
    virtual Ciphertext dot_plain(const Ciphertexts& xs, const std::vector<Plaintext>& values);

    /// i * x, exactly, at the same level.
    virtual Ciphertext times_i(const Ciphertext& x) = 0;
    virtual Ciphertext conjugate(const Ciphertext& x) = 0;

    /// Rotate to the left by 0 <= amount < slots: result[i] = x[i + amount].
    virtual Ciphertext rotate(const Ciphertext& x, std::size_t amount) = 0;

    /// Each ciphertext rotated by its own amount. A device does a few at one level at once.
    virtual Ciphertexts rotate_each(const Ciphertexts& xs, const std::vector<std::size_t>& amounts);

    /// One rotation for each amount, with the decomposition shared where possible.
    virtual Ciphertexts rotate_many(const Ciphertext& x,
                                    const std::vector<std::size_t>& amounts) = 0;

    /// The sum of the rotations by one amount or more. An engine may divide once for all.
    virtual Ciphertext rotate_sum(const Ciphertext& x, const std::vector<std::size_t>& amounts);

    /// Each result is the sum over its steps of rotate(sum over terms of rotate(operand, baby) * value,
    /// giant): a matrix of blocks given by its diagonals, one level lower. Every result up to the
    /// greatest number has a step. An engine may postpone divisions to the end. The steps of a
    /// result stand together. In a `chained` transform each giant step but the first is reached from
    /// the one before it, which takes as many rotations, but a key only for each difference.
    virtual Ciphertexts transform(const Ciphertexts& xs, const std::vector<GiantStep>& steps,
                                  bool chained);

    /// The same slots at a level that is at most the operand's.
    virtual Ciphertext drop_to(const Ciphertext& x, int level) = 0;

    /// ModRaise, which follows SlotsToCoeffs in a bootstrap: a ciphertext that has only q0 left, at a level of
    /// CoeffsToSlots or at the top. At scale q0 its slots are U (I + e): I are random integers, and e
    /// are the message's coefficients times scale/q0. They are at the scale of the level, which is q0
    /// at the top. The result is the mean of its rotations by all multiples of slots / copies, at
    /// which slots that repeat are equal: 1 or 16 copies.
    virtual Ciphertext raise_modulus(const Ciphertext& x, int level, std::size_t copies) = 0;

    /// The same slots, refreshed to a level that is at most the parameters' level after a bootstrap,
    /// from level 3 or above. The lower it is, the less work it may be. Slots must lie in [-1, 1], and
    /// repeat after `period` slots; slots that do not repeat are lost.
    virtual Ciphertexts bootstrap_many(const Ciphertexts& xs, std::size_t period, int level) = 0;

    /// From now on, bootstrap by the functions `refresh_1_PERIOD` and `refresh_2_PERIOD` of a
    /// record, in addition to earlier records.
    virtual void bootstrap_by(std::shared_ptr<const Record> record) = 0;

    /// Do the work now that products postponed. A device does that of a few ciphertexts at one level
    /// at once.
    virtual void settle(const Ciphertexts&) {}

    /// Return when all work is done; only a device works asynchronously.
    virtual void wait() {}

    /// Bytes of a ciphertext at a level, as `save` makes them: of one that was computed, or is
    /// `fresh` from a secret key.
    virtual std::size_t saved_size(int level, bool fresh) const = 0;

    /// Most bytes of a ciphertext at a level that `load` takes.
    virtual std::size_t largest_size(int level) const { return saved_size(level, false); }

    /// Bytes of a ciphertext for files and messages, and back. `load` throws Error for bytes that
    /// are damaged, or belong to other parameters or keys.
    virtual Bytes save(const Ciphertext& x) const = 0;
    virtual Ciphertext load(const Bytes& bytes) const = 0;
};

}  // namespace atlasc
