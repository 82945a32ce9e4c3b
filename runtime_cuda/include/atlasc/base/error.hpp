// Errors: what went wrong, where, why, and what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "atlasc/base/exact_math.hpp"

namespace atlasc {

/// A mistake that the user can mend. The executables print it and exit with its code.
class Error : public std::runtime_error {
public:
    explicit Error(const std::string& what, std::string why = "", std::string remedy = "")
        : std::runtime_error(what), why(std::move(why)), remedy(std::move(remedy)) {}

    static constexpr int user_error = 2;
    static constexpr int outside_range = 3;  ///< an answer far outside the calibration

    int exit_code = user_error;
    std::string where;
    std::string why;
    std::string remedy;
};

/// A text without control characters: everything but printable ASCII becomes \xNN.
std::string printable(const std::string& text);

}  // namespace atlasc
