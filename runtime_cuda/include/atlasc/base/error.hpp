// What went wrong, where, why, and what to do about it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "atlasc/base/exact_math.hpp"

namespace atlasc {

/// A mistake that a user can mend: the executables print it and exit with its code.
class Error : public std::runtime_error {
public:
    explicit Error(const std::string& what, std::string why = "", std::string remedy = "")
        : std::runtime_error(what), why(std::move(why)), remedy(std::move(remedy)) {}

    static constexpr int user_error = 2;
    static constexpr int outside_range = 3;  ///< of an answer that calibration never saw

    int exit_code = user_error;
    std::string where;
    std::string why;
    std::string remedy;
};

/// A text in which a terminal finds nothing to obey: other than printable ASCII becomes \xNN.
std::string printable(const std::string& text);

}  // namespace atlasc
