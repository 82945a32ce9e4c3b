// Bootstraps on the simulation engine: raised slots from standard input, the message's to output.
//
//   on_sim_engine RING_DEGREE BASE_BITS DEGREE DOUBLE_ANGLES ARCSINE [without]
//   on_sim_engine keys                     lines: amount and level of the rotation keys
//   on_sim_engine refresh RING_DEGREE COUNT [SEED]
//
// Prints the levels before and after to standard error. `without` leaves out a rotation key.
// `refresh` has the engine raise the modulus: COUNT vectors of real slots come back; SEED adds the
// errors of CKKS.
#include <algorithm>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "atlasc/error.hpp"
#include "bootstrap.hpp"
#include "engines/sim/sim_engine.hpp"

namespace {

using Complex = std::complex<double>;

int print_keys() {
    const atlasc::bootstrapping::Bootstrap bootstrap({});
    for (const auto& [amount, level] : bootstrap.rotations()) {
        std::printf("%zu %d\n", amount, level);
    }
    return 0;
}

int refresh(int count, char** arguments) {
    const long degree = std::atol(arguments[2]);
    const auto slots = static_cast<std::size_t>(degree / 2);
    const auto set = atlasc::bootstrapping::named("fourteen_levels", degree);
    const atlasc::Moduli moduli = {{}, {}, set.scale_bits, "fourteen_levels"};
    const atlasc::Parameters parameters = {slots, set.levels_left, set.levels_left, 2, moduli};
    const atlasc::sim::Noise noise =
        count > 4 ? atlasc::sim::Noise::ckks(parameters, std::strtoul(arguments[4], nullptr, 10))
                  : atlasc::sim::Noise();
    const auto rotations = atlasc::bootstrapping::Bootstrap(set).rotations();
    atlasc::sim::SimEngine engine(parameters, rotations, "key", true, noise);
    engine.bootstrap_by(std::make_shared<atlasc::sim::AlgorithmicBootstrap>(set));

    atlasc::Ciphertexts xs;
    for (int at = 0; at < std::atoi(arguments[3]); ++at) {
        atlasc::Vector vector(slots);
        if (std::fread(vector.data(), sizeof(double), slots, stdin) != slots) {
            throw atlasc::Error("too few slots");
        }
        xs.push_back(engine.encrypt(vector, at % 3));
    }
    for (const atlasc::Ciphertext& y : engine.bootstrap_many(xs)) {
        const atlasc::Vector vector = engine.decrypt(y);
        std::fwrite(vector.data(), sizeof(double), slots, stdout);
        std::fprintf(stderr, "%d ", engine.level(y));
    }
    return 0;
}

int run(int count, char** arguments) {
    atlasc::bootstrapping::Parameters parameters;
    parameters.ring_degree = std::atol(arguments[1]);
    parameters.base_bits = std::atoi(arguments[2]);
    parameters.degree = std::atoi(arguments[3]);
    parameters.double_angles = std::atoi(arguments[4]);
    parameters.arcsine = std::atoi(arguments[5]);
    parameters.special_primes = 1;
    const atlasc::bootstrapping::Bootstrap bootstrap(parameters);

    const auto slots = static_cast<std::size_t>(parameters.ring_degree / 2);
    const int top = parameters.levels_left + bootstrap.levels();
    auto rotations = bootstrap.rotations();
    if (count > 6) {
        rotations.erase(rotations.begin());
    }
    atlasc::sim::SimEngine engine({slots, top, {}, 1}, rotations, "key", true);

    std::vector<Complex> raised(slots);
    if (std::fread(raised.data(), sizeof(Complex), slots, stdin) != slots) {
        throw atlasc::Error("too few slots");
    }
    atlasc::Vector real(slots);
    atlasc::Vector imaginary(slots);
    std::transform(raised.begin(), raised.end(), real.begin(), [](Complex z) { return z.real(); });
    std::transform(raised.begin(), raised.end(), imaginary.begin(),
                   [](Complex z) { return z.imag(); });
    const atlasc::Ciphertext x = engine.add(engine.encrypt(real, top),
                                            engine.times_i(engine.encrypt(imaginary, top)));
    const atlasc::Ciphertext y = bootstrap(engine, x);
    const atlasc::Vector parts[2] = {engine.decrypt(y),
                                     engine.decrypt(engine.negate(engine.times_i(y)))};
    for (std::size_t slot = 0; slot < slots; ++slot) {
        const Complex value(parts[0][slot], parts[1][slot]);
        std::fwrite(&value, sizeof value, 1, stdout);
    }
    std::fprintf(stderr, "%d %d\n", top, engine.level(y));
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        if (count == 2) {
            return print_keys();
        }
        const bool whole = std::string(arguments[1]) == "refresh";
        return whole ? refresh(count, arguments) : run(count, arguments);
    } catch (const atlasc::Error& error) {
        std::fprintf(stderr, "%s: %s\n", error.what(), error.why.c_str());
        return 2;
    }
}
