#include "python/roles.hpp"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "atlasc/backend.hpp"
#include "atlasc/client_data.hpp"
#include "atlasc/ledger.hpp"
#include "atlasc/messages.hpp"
#include "atlasc/roles.hpp"
#include "atlasc/sharing.hpp"
#include "python/arrays.hpp"
#include "python/calls.hpp"

namespace atlasc::python {
namespace {

NamedSlots slots_of(const std::map<std::string, Array>& arrays) {
    NamedSlots slots;
    for (const auto& [name, array] : arrays) {
        const auto width = static_cast<std::size_t>(array.shape(1));
        for (py::ssize_t part = 0; part < array.shape(0); ++part) {
            const double* const row = array.data(part, 0);
            slots[name].emplace_back(row, row + width);
        }
    }
    return slots;
}

std::map<std::string, Array> arrays_of(const NamedSlots& slots) {
    std::map<std::string, Array> arrays;
    for (const auto& [name, parts] : slots) {
        Array array({parts.size(), parts.at(0).size()});
        for (std::size_t part = 0; part < parts.size(); ++part) {
            std::copy(parts[part].begin(), parts[part].end(),
                      array.mutable_data(static_cast<py::ssize_t>(part), 0));
        }
        arrays.emplace(name, std::move(array));
    }
    return arrays;
}

/// What a function of Python gives; its AtlasError becomes an Error.
template <typename Call>
auto explained(Call call) {
    try {
        return call();
    } catch (const py::error_already_set& raised) {
        const py::object kind = py::module_::import("atlasc.ir.errors").attr("AtlasError");
        if (!raised.matches(kind)) {
            throw;
        }
        const auto text = [&raised](const char* name) {
            return raised.value().attr(name).cast<std::string>();
        };
        Error error(text("what"), text("why"), text("remedy"));
        error.where = text("where");
        throw error;
    }
}

}  // namespace

void define_client(py::module_& module) {
    module.attr("OUTSIDE") = outside_factor;
    module.attr("LARGE") = large_factor;
    module.attr("LARGE_REMEDY") = large_remedy;
    module.attr("NOT_FINITE_REMEDY") = not_finite_remedy;
    module.attr("PUBLIC_NAMES") = py::make_tuple(mask_name, position_name);
    module.def("reach_text", reach_text, py::arg("reached"));
    module.def(
        "reaches",
        [](const Interface& interface, const std::map<std::string, Array>& arrays) {
            return reaches(interface, tensors_of(arrays));
        },
        py::arg("interface"), py::arg("arrays"));
    module.def(
        "packed",
        [](const Interface& interface, const std::map<std::string, Array>& arrays,
           bool unchecked) {
            const Tensors inputs = tensors_of(arrays);
            Packed ready = computed([&] { return packed(interface, inputs, unchecked); });
            return py::make_tuple(arrays_of(ready.slots), arrays_of(ready.publics), ready.count,
                                  ready.doubt);
        },
        py::arg("interface"), py::arg("arrays"), py::arg("unchecked"),
        "Slots and public inputs by name, the number of inputs, and the doubt; see `Packed`.");
    module.def(
        "answers",
        [](const Interface& interface, const std::map<std::string, Array>& arrays,
           std::size_t count) {
            const NamedSlots slots = slots_of(arrays);
            const Answers found = computed([&] { return answers(interface, slots, count); });
            return py::make_tuple(arrays_of(found.outputs), found.refused);
        },
        py::arg("interface"), py::arg("slots"), py::arg("count"),
        "Outputs by name, and the share of the wrong slots by row; see `Answers`.");
}

namespace {

/// Floods as (deviation, decimals, digits) by the name of the output.
using FloodTuples = std::map<std::string, std::tuple<double, int, int>>;

FloodTuples tuples_of(const Floods& floods) {
    FloodTuples tuples;
    for (const auto& [name, flood] : floods) {
        tuples[name] = {flood.deviation, flood.decimals, flood.digits};
    }
    return tuples;
}

Floods floods_of(const FloodTuples& tuples) {
    Floods floods;
    for (const auto& [name, numbers] : tuples) {
        const auto [deviation, decimals, digits] = numbers;
        floods[name] = {deviation, decimals, digits};
    }
    return floods;
}

}  // namespace

void define_sharing(py::module_& module) {
    module.attr("LEAST_BITS") = Sharing::least_bits;
    module.def(
        "floods",
        [](const Interface& interface, std::size_t count, std::int64_t bits, std::int64_t shares) {
            return tuples_of(floods(interface, count, {bits, shares}));
        },
        py::arg("interface"), py::arg("count"), py::arg("bits"), py::arg("shares"));
    module.def(
        "require_digits",
        [](const Interface& interface, std::size_t count, std::int64_t bits, std::int64_t shares) {
            return tuples_of(require_digits(interface, count, {bits, shares}));
        },
        py::arg("interface"), py::arg("count"), py::arg("bits"), py::arg("shares"));
    module.def(
        "flooded",
        [](const std::map<std::string, Array>& exact, const FloodTuples& floods) {
            return arrays_of(flooded(tensors_of(exact), floods_of(floods)));
        },
        py::arg("exact"), py::arg("floods"));
    module.def(
        "secure_normal",
        [](std::size_t count) { return array_of({{count}, secure_normal(count)}); },
        py::arg("count"));
    module.def("normal_number", normal_number, py::arg("first"), py::arg("second"));
    module.def("rounded", rounded, py::arg("number"), py::arg("decimals"));
}

namespace {

using SerializedValues = std::map<std::string, std::vector<py::bytes>>;

}  // namespace

void define_messages(py::module_& module) {
    py::class_<SerializedMessage>(module, "Message", "A query or an answer.")
        .def(py::init([](std::string kind, std::string engine, std::string query,
                         std::size_t count, const SerializedValues& values,
                         const std::map<std::string, Array>& publics) {
                 SerializedMessage message{std::move(kind), std::move(engine), std::move(query),
                                           count};
                 message.name = "the " + message.kind;
                 for (const auto& [name, parts] : values) {
                     for (const py::bytes& part : parts) {
                         message.values[name].push_back(bytes_of(part));
                     }
                 }
                 message.publics = tensors_of(publics);
                 return message;
             }),
             py::kw_only(), py::arg("kind"), py::arg("engine"), py::arg("query"),
             py::arg("count"), py::arg("values"), py::arg("publics"))
        .def_static(
            "read",
            [](const std::variant<py::bytes, std::string>& source, const std::string& kind,
               const Interface& interface, const std::map<int, std::uint64_t>& bytes) {
                const auto most = [&bytes](int level) { return bytes.at(level); };
                if (const auto* const path = std::get_if<std::string>(&source)) {
                    return computed([&] {
                        PlainFile file(*path);
                        file.hold(message_bytes(interface, most));
                        return read_message(TensorFile(std::move(file)), kind, interface, most);
                    });
                }
                PlainFile file("the message", bytes_of(std::get<py::bytes>(source)));
                return computed([&] {
                    return read_message(TensorFile(std::move(file)), kind, interface, most);
                });
            },
            py::arg("source"), py::arg("kind"), py::arg("interface"), py::arg("bytes"),
            "From a path, or bytes. `bytes`: most of a ciphertext, by its level.")
        .def("sealed",
             [](const SerializedMessage& message, const Interface& interface) {
                 return python_bytes(
                     computed([&] { return message_writer(interface, message).sealed(); }));
             })
        .def(
            "load",
            [](SerializedMessage& message, const Interface& interface, const std::string& engine,
               const std::function<int(const std::string&, const py::bytes&)>& load) {
                // The message keeps its bytes, for who reads it again.
                load_ciphertexts(message, interface, engine,
                                 [&load](const std::string& name, Bytes& bytes) {
                                     return explained([&] { return load(name, python_bytes(bytes)); });
                                 });
            },
            py::arg("interface"), py::arg("engine"), py::arg("load"),
            "Gives each ciphertext, by the name of its input or output, to a function that returns its "
            "level.")
        .def_property_readonly(
            "publics",
            [](const SerializedMessage& message) { return arrays_of(message.publics); })
        .def_readonly("kind", &SerializedMessage::kind)
        .def_readonly("engine", &SerializedMessage::engine)
        .def_readonly("query", &SerializedMessage::query)
        .def_readonly("count", &SerializedMessage::count)
        .def_readonly("name", &SerializedMessage::name)
        .def_readonly("digest", &SerializedMessage::digest);
    module.def(
        "sent_bytes",
        [](const std::string& backend, const std::string& engine, const Interface& keys,
           const Interface& program, std::size_t count) {
            return computed([&] {
                // The engine that encrypts is the same on every device.
                const Backend& kind = backend == sim_backend.name ? sim_backend : built_backend();
                Interface named = keys;
                named.engine = backend;
                const Sizes sizes = kind.sizes(named);
                const Interface messages = program.of_messages();
                const auto size = [&](const std::string& name, bool fresh) {
                    return message_size(messages, name, engine, count, [&](int level) {
                        return sizes.ciphertext(level, fresh);
                    });
                };
                return std::tuple(sizes.evaluation_keys, size("query", true),
                                  size("answer", false));
            });
        },
        py::arg("backend"), py::arg("engine"), py::arg("keys"), py::arg("program"),
        py::arg("count"),
        "Bytes of the evaluation keys, and of a query and an answer with `count` inputs. `backend` "
        "is the engine of the keys, `engine` the name in messages.");
}

namespace {

/// A ledger that is closed, and with it unlocked, at a certain moment.
struct OpenLedger {
    std::optional<Ledger> ledger;

    Ledger& open() { return ledger.value(); }
};

Ledger::Entry entry_of(const py::tuple& entry) {
    return {entry[0].cast<std::string>(), entry[1].cast<std::string>(),
            entry[2].cast<std::size_t>(), entry[3].cast<std::string>()};
}

}  // namespace

void define_ledger(py::module_& module) {
    // Entries are tuples (query, program, count, answer).
    py::class_<OpenLedger> ledger(module, "Ledger");
    ledger.attr("MOST_REFUSALS") = Ledger::most_refusals;
    ledger.attr("MOST_DOUBT") = Ledger::most_doubt;
    ledger
        .def(py::init([](const std::string& folder) {
                 const py::gil_scoped_release released;  // another thread may have it
                 auto opened = std::make_unique<OpenLedger>();
                 opened->ledger.emplace(folder);
                 return opened;
             }),
             py::arg("folder"))
        .def("close", [](OpenLedger& one) { one.ledger.reset(); })
        .def("add",
             [](OpenLedger& one, const py::tuple& query, const std::optional<std::string>& doubt) {
                 one.open().add(entry_of(query), doubt);
             })
        .def("check",
             [](OpenLedger& one, const py::tuple& answer) { one.open().check(entry_of(answer)); })
        .def("answer",
             [](OpenLedger& one, const py::tuple& answer) { one.open().answer(entry_of(answer)); })
        .def("refuse",
             [](OpenLedger& one, const py::tuple& answer) { one.open().refuse(entry_of(answer)); })
        .def("refusals", [](OpenLedger& one) { return one.open().refusals(); })
        .def("end",
             [](OpenLedger& one, const py::tuple& answer) { one.open().end(entry_of(answer)); })
        .def("ended", [](OpenLedger& one) { return one.open().ended(); })
        .def("require_shareable",
             [](OpenLedger& one, const py::tuple& answer, int bits, std::size_t shares) {
                 one.open().require_shareable(entry_of(answer), bits, shares);
             })
        .def("share",
             [](OpenLedger& one, const py::tuple& answer, int bits, std::size_t shares) {
                 return one.open().share(entry_of(answer), bits, shares);
             });
}

namespace {

using PythonDecrypt = std::function<std::map<std::string, Array>()>;
using PythonLoad = std::function<PythonDecrypt()>;

/// Functions of Python, called from where the interpreter's lock was let go.
LoadAnswer load_of(const PythonLoad& load) {
    return [&load]() -> Decrypt {
        const py::gil_scoped_acquire acquired;
        return [decrypt = explained(load)] {
            const py::gil_scoped_acquire acquired_again;
            return slots_of(explained(decrypt));
        };
    };
}

}  // namespace

void define_answers(py::module_& module) {
    module.def(
        "decrypt_answer",
        [](const std::string& folder, const py::tuple& answer, const Interface& interface,
           const PythonLoad& load) {
            const Ledger::Entry entry = entry_of(answer);
            const Answers found = computed([&] {
                Ledger ledger(folder);
                return decrypt_answer(ledger, entry, interface, load_of(load));
            });
            return py::make_tuple(arrays_of(found.outputs), found.refused);
        },
        py::arg("folder"), py::arg("answer"), py::arg("interface"), py::arg("load"),
        "With the ledger in a folder: outputs, and the refused rows; see `answers`. `load` returns a "
        "function that returns the slots by name.");
    module.def(
        "share_answer",
        [](const std::string& folder, const py::tuple& answer, const Interface& interface,
           const PythonLoad& load, std::int64_t bits, std::int64_t shares) {
            const Ledger::Entry entry = entry_of(answer);
            const SharedAnswers found = computed([&] {
                Ledger ledger(folder);
                return share_answer(ledger, entry, interface, load_of(load), {bits, shares});
            });
            return py::make_tuple(arrays_of(found.outputs), found.refused, tuples_of(found.floods),
                                  found.number);
        },
        py::arg("folder"), py::arg("answer"), py::arg("interface"), py::arg("load"),
        py::arg("bits"), py::arg("shares"),
        "The same with noise; and the noise of each output, and how many answers were shared.");
}

}  // namespace atlasc::python
