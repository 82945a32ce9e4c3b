// Changes of a file as accidents and attackers make them.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace fuzz {

using Random = std::mt19937_64;

/// A few changes anywhere: bits, bytes, pieces, numbers in decimal digits, words of JSON.
std::string mutated(std::string content, Random& random);

/// The same of a sealed file, in the header or in the data, sealed again as a forger would.
std::string resealed(const std::string& content, Random& random);

/// A ciphertext with the checksum of its words, after identity and level: ckks/ciphertext_files.cpp.
std::string with_checksum(std::string content);

}  // namespace fuzz
