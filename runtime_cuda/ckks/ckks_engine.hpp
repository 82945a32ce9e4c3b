// CKKS ciphertexts on a device (device.hpp).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "atlasc/backend.hpp"
#include "atlasc/record.hpp"
#include "ckks/keys/role.hpp"
#include "ckks/plaintexts/plaintext_cache.hpp"
#include "ckks/repeated.hpp"
#include "ckks/plaintexts/encoder.hpp"
#include "ckks/value.hpp"

namespace atlasc::ckks {

/// Throws Error: a primitive is impossible.
[[noreturn]] void refuse(const std::string& primitive, const std::string& why,
                         const std::string& remedy = "");

/// Relinearises and rescales late and once: a sum of products is one division (value.hpp). No launch
/// is waited for. Any number of threads may use an engine and its ciphertexts at once.
class CkksEngine : public Engine {
public:
    CkksEngine(std::unique_ptr<Ground> ground, Role role);
    /// The engine of the bootstraps of another one that end at a lower level: by the same keys and
    /// encoded plaintexts, with fewer primes.
    CkksEngine(const CkksEngine& whole, int level);
    ~CkksEngine() override;

    const Backend& backend() const override { return ckks_backend; }
    const std::string& identity() const override { return role_.identity; }
    void settle(const Ciphertexts& xs) override;
    std::size_t slots() const override { return ring_.slots(); }
    Ciphertext encrypt(const Vector& vector, int level) override;
    Vector decrypt(const Ciphertext& x) override;
    int level(const Ciphertext& x) const override;
    Ciphertext add(const Ciphertext& left, const Ciphertext& right) override;
    Ciphertext sub(const Ciphertext& left, const Ciphertext& right) override;
    Ciphertext negate(const Ciphertext& x) override;
    Ciphertext add_plain(const Ciphertext& x, const Plaintext& value) override;
    Ciphertext mul(const Ciphertext& left, const Ciphertext& right) override;
    Ciphertext square(const Ciphertext& x) override;
    Ciphertext dot(const Ciphertexts& lefts, const Ciphertexts& rights) override;
    Ciphertext mul_plain(const Ciphertext& x, const Plaintext& value) override;
    Ciphertext dot_plain(const Ciphertexts& xs, const std::vector<Plaintext>& values) override;
    Ciphertext times_i(const Ciphertext& x) override;
    Ciphertext conjugate(const Ciphertext& x) override;
    Ciphertext rotate(const Ciphertext& x, std::size_t amount) override;
    Ciphertexts rotate_each(const Ciphertexts& xs,
                            const std::vector<std::size_t>& amounts) override;
    Ciphertexts rotate_many(const Ciphertext& x, const std::vector<std::size_t>& amounts) override;
    Ciphertext rotate_sum(const Ciphertext& x, const std::vector<std::size_t>& amounts) override;
    Ciphertexts transform(const Ciphertexts& xs, const std::vector<GiantStep>& steps,
                          bool chained) override;
    Ciphertext drop_to(const Ciphertext& x, int level) override;
    Ciphertext raise_modulus(const Ciphertext& x, int level, std::size_t copies) override;
    Ciphertexts bootstrap_many(const Ciphertexts& xs, std::size_t period, int level) override;
    void bootstrap_by(std::shared_ptr<const Record> record) override {
        bootstraps_.add(std::move(record));
    }
    std::size_t saved_size(int level, bool fresh) const override;
    std::size_t largest_size(int level) const override;
    Bytes save(const Ciphertext& x) const override;
    Ciphertext load(const Bytes& bytes) const override;

    /// Complex slots, for tests; needs the secret key.
    ComplexVector decrypt_complex(const Ciphertext& x);

    const Memory& memory() const { return *ground_->memory; }

    /// Waits until the device has done all that was asked of it.
    void wait() override { synchronize(); }

private:
    using Polynomials = std::shared_ptr<const Polys>;

    std::size_t limbs_of(int level) const;
    /// Primes of a product that has a level once it is rescaled.
    std::size_t pending_limbs(int level) const;
    double scale_of(int level) const;
    double pending_scale(int level) const;
    bool is_pending(const Value& x) const;
    /// The form that everything but sums and products with plaintexts needs.
    Value canonical(const Ciphertext& x) const;
    /// Puts those in canonical form that need a division for it, a few at once.
    void settled(const Ciphertexts& handles) const;
    Ciphertext lowered(const Ciphertext& x, int level) const;
    Ciphertext combined(const Ciphertext& left, const Ciphertext& right, bool minus) const;
    /// A ciphertext that is a sum: a short one waits where its form is pending.
    Ciphertext summed(Combination sum, int level, double scale) const;
    Polynomials words_of(const Value& x) const;
    /// A ciphertext times an integer, as a sum of one term; where it is a sum itself and the integer is
    /// 1, `times` is that sum.
    Combination term(const Value& x, double number, std::size_t limbs) const;
    Combination times(const Value& x, double number, std::size_t limbs) const;
    /// An operand of a product with a plaintext, at the operands' level: canonical or dropped.
    Value factor(const Ciphertext& x, int level) const;
    const SwitchKey& key_for(std::size_t amount, int level) const;
    /// Adds the sums of some giant steps, rotated, to those of their results.
    void add_turned(std::vector<Extended> sums, const GiantStep* steps, int level,
                    std::vector<std::optional<Extended>>& totals) const;
    /// The same for the steps of a chained transform from `first` on. Those behind them are in the
    /// totals.
    void add_chained(std::vector<Extended> sums, const std::vector<GiantStep>& steps,
                     std::size_t first, int level,
                     std::vector<std::optional<Extended>>& totals) const;
    /// Rotated, with another one added if there is one.
    Extended turned(const Extended& x, std::size_t amount, int level, const Extended* more) const;
    /// Of the operands of a product. Throws Error where no product is left.
    int least_level(const std::vector<const Ciphertexts*>& operands, const char* primitive) const;
    CkksEngine& landing(int level);
    /// By an engine, this one or a landing: of two at once, or of the last one.
    Ciphertexts refreshed(CkksEngine& engine, const Ciphertexts& xs, std::size_t period);
    /// The values of a plaintext of the whole chain for `limbs` primes of this one.
    PlainValues of_own_primes(PlainValues values, std::size_t limbs) const;
    /// Plaintexts, for as long as `kept` has them; see PlaintextCache.
    std::vector<PlainValues> encoded(const std::vector<const Plaintext*>& values,
                                     const std::vector<double>& scales, std::size_t limbs,
                                     std::size_t special, bool again,
                                     std::vector<std::shared_ptr<const Plain>>& kept) const;

    std::unique_ptr<Ground> ground_;
    const Ring& ring_;
    Role role_;
    // Of the whole chain, for landings too.
    std::shared_ptr<Encoder> encoder_;
    std::shared_ptr<PlaintextCache> cache_;
    std::shared_ptr<Repeated> repeated_;  ///< bootstraps
    Bootstraps bootstraps_;
    std::mutex mutex_;  ///< over what follows
    std::map<int, std::unique_ptr<CkksEngine>> landings_;
};

}  // namespace atlasc::ckks
