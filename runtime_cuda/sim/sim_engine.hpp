// Cleartext slots that behave like ciphertexts: exact, fast, and strict about levels and keys.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "atlasc/backend.hpp"
#include "atlasc/interface.hpp"
#include "atlasc/record.hpp"
#include "sim/noise.hpp"

namespace atlasc::sim {

/// In every file.
inline const std::string note =
    "SIMULATION: nothing is encrypted; this hides nothing and protects nobody";

/// Bytes of a ciphertext in files.
std::size_t saved_size(std::size_t slots);

/// The keys of an engine: with a secret it encrypts and decrypts, with a public key it encrypts.
enum class Holds { secret, public_key, evaluation };

/// Refuses what a real engine could not do, or would do silently wrong: a product at level 0, values
/// outside the range of a bootstrap, values that no longer fit the last modulus, a rotation without
/// a key.
class SimEngine final : public Engine {
public:
    /// Amount -> highest level at which there is a rotation key; nothing: there are all keys.
    using Reach = std::optional<std::map<std::size_t, int>>;

    /// `key`: identity of the key pair, which every ciphertext
    /// carries. `noise`: nothing is exact, and the same seed gives the same errors.
    /// `bootstrap_range`: the largest slot that may enter a bootstrap.
    SimEngine(Parameters parameters, Reach rotations, std::string key, Holds holds,
              const Noise& noise = Noise(), double bootstrap_range = 1.0);

    /// Where the environment asks for it, by ATLASC_SIM_BOOTSTRAP=algorithm; without, slots are
    /// copied. Throws Error: it asks for something else, or the parameters have no such bootstrap.
    void bootstrap_by(std::shared_ptr<const Record> record) override;

    const Backend& backend() const override { return sim_backend; }
    const std::string& identity() const override { return key_; }
    std::size_t slots() const override { return parameters_.slots; }
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
    Ciphertexts rotate_many(const Ciphertext& x, const std::vector<std::size_t>& amounts) override;
    Ciphertext drop_to(const Ciphertext& x, int level) override;
    Ciphertext raise_modulus(const Ciphertext& x, int level, std::size_t copies) override;
    Ciphertexts bootstrap_many(const Ciphertexts& xs, std::size_t period, int level) override;
    std::size_t saved_size(int level, bool fresh) const override;
    Bytes save(const Ciphertext& x) const override;
    Ciphertext load(const Bytes& bytes) const override;

private:
    /// With errors of both parts, of that deviation each.
    Ciphertext noisy(const Ciphertext& x, double deviation);

    /// Errors of the simulation, in the order in which they are asked for.
    Vector drawn(std::size_t count, double deviation);

    /// Real values of which the mean of all blocks of `period` comes back, with the errors of a
    /// bootstrap, which are real, and repeat.
    Ciphertext bootstrapped(ComplexVector values, std::size_t period, int level);

    /// A factor of a product, rescaled.
    Ciphertext factor(const Ciphertext& x) { return noisy(x, noise_.rescale_at(level(x))); }

    /// With the errors of its encoding.
    Plaintext encoded(const Plaintext& value);

    /// Refuses what a bootstrap would turn into garbage.
    void check_range(const ComplexVector& values) const;

    Parameters parameters_;
    Reach rotations_;
    std::string key_;
    Holds holds_;
    Noise noise_;
    double bootstrap_range_;
    std::mutex mutex_;  ///< over the random numbers
    std::mt19937_64 random_;
    Bootstraps bootstraps_;
};

}  // namespace atlasc::sim
