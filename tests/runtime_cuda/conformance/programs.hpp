// Interfaces for the conformance suite and the benchmark: parameters and keys without a program.
#pragma once

#include <memory>
#include <string>

#include "atlasc/interface.hpp"
#include "atlasc/record.hpp"

namespace conformance {

/// `levels` products at a ring of 2^log_degree; rotations by 1, 5, 64 and slots - 1 to the right
/// reach the top, one by 7 reaches level 1.
atlasc::Interface leveled(int log_degree, int levels, int special_primes);

/// A set that bootstraps.
struct Bootstrapped {
    atlasc::Interface interface;
    std::shared_ptr<const atlasc::Record> record;
    std::string name;
};

/// Times that the slots of the file's narrow bootstraps repeat.
constexpr std::size_t copies = 32;

/// As many slots, of which the first `period` repeat.
atlasc::Vector repeated(const atlasc::Vector& slots, std::size_t period);

/// The set in a file of atlasc/emit/parameter_set.py, with rotations by 1 and 64 at the program's
/// level.
Bootstrapped bootstrapped(const std::string& path);

}  // namespace conformance
