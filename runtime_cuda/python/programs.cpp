// Programs in files and their interfaces, for Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "atlasc/program_file.hpp"
#include "python/roles.hpp"

namespace py = pybind11;

namespace atlasc::python {
namespace {

/// The highest level of a key, if there is one.
std::optional<int> level_of(int level) {
    return level < 0 ? std::nullopt : std::optional<int>(level);
}

/// A derivation: the level of derived keys, the last one of roots, derived amount -> root.
using Derived = std::tuple<int, int, std::map<std::size_t, std::size_t>>;

Derivation derivation_of(Derived derived) {
    return {std::get<0>(derived), std::get<1>(derived), std::move(std::get<2>(derived))};
}

Derived derived_of(const Derivation& derivation) {
    return {derivation.level, derivation.last, derivation.roots};
}

/// A class with what an input and an output have both.
template <typename Packed>
py::class_<Packed> packed(py::module_& module, const char* name) {
    py::class_<Packed> kind(module, name);
    kind.def_readonly("name", &Packed::name)
        .def_readonly("shape", &Packed::shape)
        .def_property_readonly("layout", [](const Packed& one) { return one.layout.text(); })
        .def_property_readonly("ciphertexts",
                               [](const Packed& one) { return one.layout.ciphertexts(); })
        .def_readonly("level", &Packed::level)
        .def_readonly("magnitude", &Packed::magnitude)
        .def_readonly("state", &Packed::state);
    return kind;
}

}  // namespace

void define_interface(py::module_& module) {
    using Shape = std::vector<std::size_t>;
    using Magnitude = std::optional<double>;
    packed<EncryptedInput>(module, "EncryptedInput")
        .def(py::init([](std::string name, Shape shape, const std::string& layout, int level,
                         double factor, bool centred, Magnitude magnitude, bool state,
                         std::string prefix) {
                 return EncryptedInput{std::move(name), std::move(shape), Layout(layout), level,
                                       factor,          centred,          magnitude,      state,
                                       std::move(prefix)};
             }),
             py::kw_only(), py::arg("name"), py::arg("shape"), py::arg("layout"),
             py::arg("level"), py::arg("factor"), py::arg("centred"), py::arg("magnitude"),
             py::arg("state"), py::arg("prefix"))
        .def_readonly("factor", &EncryptedInput::factor)
        .def_readonly("centred", &EncryptedInput::centred)
        .def_readonly("prefix", &EncryptedInput::prefix);
    py::class_<PublicInput>(module, "PublicInput")
        .def(py::init([](std::string name, Shape shape) {
                 return PublicInput{std::move(name), std::move(shape)};
             }),
             py::kw_only(), py::arg("name"), py::arg("shape"))
        .def_readonly("name", &PublicInput::name)
        .def_readonly("shape", &PublicInput::shape);
    packed<Output>(module, "Output")
        .def(py::init([](std::string name, Shape shape, const std::string& layout, Vector factor,
                         Vector shift, int level, Magnitude magnitude, std::optional<double> noise,
                         bool state, std::string function) {
                 return Output{std::move(name),  std::move(shape), Layout(layout), std::move(factor),
                               std::move(shift), level,            magnitude,      noise,
                               state,            std::move(function)};
             }),
             py::kw_only(), py::arg("name"), py::arg("shape"), py::arg("layout"),
             py::arg("factor"), py::arg("shift"), py::arg("level"), py::arg("magnitude"),
             py::arg("noise"), py::arg("state"), py::arg("function"))
        .def_readonly("factor", &Output::factor)
        .def_readonly("shift", &Output::shift)
        .def_readonly("noise", &Output::noise)
        .def_readonly("function", &Output::function);
    py::class_<Interface>(module, "Interface", "What client and server agree on.")
        .def(py::init([](std::string model, std::string identity,
                         std::vector<EncryptedInput> inputs, std::vector<PublicInput> publics,
                         std::vector<Output> outputs, std::map<std::size_t, int> rotations,
                         int relinearization_level, int conjugation_level, Derived derived) {
                 Interface interface{};
                 interface.model = std::move(model);
                 interface.identity = std::move(identity);
                 interface.inputs = std::move(inputs);
                 interface.publics = std::move(publics);
                 interface.outputs = std::move(outputs);
                 interface.plan = {std::move(rotations), relinearization_level, conjugation_level,
                                   derivation_of(std::move(derived))};
                 return interface;
             }),
             py::kw_only(), py::arg("model"), py::arg("identity"), py::arg("inputs"),
             py::arg("publics"), py::arg("outputs"), py::arg("rotations"),
             py::arg("relinearization_level"), py::arg("conjugation_level"), py::arg("derivation"),
             "Of messages.")
        .def_readonly("model", &Interface::model)
        .def_readonly("identity", &Interface::identity)
        .def_readonly("inputs", &Interface::inputs)
        .def_readonly("publics", &Interface::publics)
        .def_readonly("outputs", &Interface::outputs)
        .def_property_readonly("batch", &Interface::batch)
        .def_property_readonly("rotations", [](const Interface& one) { return one.plan.rotations; })
        .def_property_readonly(
            "relinearization_level",
            [](const Interface& one) { return level_of(one.plan.relinearisation_level); })
        .def_property_readonly(
            "conjugation_level",
            [](const Interface& one) { return level_of(one.plan.conjugation_level); })
        .def_property_readonly(
            "derivation", [](const Interface& one) { return derived_of(one.plan.derivation); })
        .def("of_messages", &Interface::of_messages, "Without the state that a server keeps.")
        .def_property_readonly("keeps_state", &Interface::keeps_state)
        .def(py::init([](std::size_t slots, int max_level, std::optional<int> bootstrap_level,
                         int bootstrap_batch, std::vector<int> primes, std::vector<int> special,
                         int scale, std::vector<double> log_scales,
                         std::map<std::size_t, int> rotations, int relinearisation_level,
                         int conjugation_level, Derived derived, std::string engine) {
                 Interface interface;
                 interface.engine = std::move(engine);
                 interface.parameters = {
                     slots, max_level, bootstrap_level, bootstrap_batch,
                     Moduli{std::move(primes), std::move(special), scale, std::move(log_scales)}};
                 interface.keys = {std::move(rotations), relinearisation_level,
                                   conjugation_level, derivation_of(std::move(derived))};
                 return interface;
             }),
             "Of keys.", py::kw_only(), py::arg("slots"), py::arg("max_level"), py::arg("bootstrap_level"),
             py::arg("bootstrap_batch"), py::arg("primes"), py::arg("special"),
             py::arg("scale"), py::arg("log_scales"), py::arg("rotations"),
             py::arg("relinearisation_level"), py::arg("conjugation_level"),
             py::arg("derivation"), py::arg("engine"));
}

void define_programs(py::module_& module) {
    using Call = StoredProgram::Call;
    module.def(
        "read_interface",
        [](const std::string& path) {
            return read_interface(TensorFile(path, TensorFile::large_header));
        },
        py::arg("path"), "Of a client's file.");
    py::class_<Call>(module, "Call")
        .def_readonly("name", &Call::name)
        .def_readonly("kind", &Call::kind)
        .def_readonly("location", &Call::place)
        .def_readonly("layer", &Call::layer)
        .def_readonly("seconds", &Call::seconds)
        .def_readonly("function", &Call::function)
        .def_readonly("arrays", &Call::arrays)
        .def_readonly("operands", &Call::operands);
    py::class_<StoredProgram>(module, "StoredProgram", "A server's file.")
        .def(py::init([](const std::string& path) {
                 return StoredProgram(TensorFile(path, TensorFile::large_header));
             }),
             py::arg("path"))
        .def_property_readonly("interface", &StoredProgram::interface,
                               py::return_value_policy::copy)
        .def_property_readonly("calls", &StoredProgram::calls)
        .def_property_readonly("outputs", &StoredProgram::outputs)
        .def_property_readonly("measured", &StoredProgram::measured);
}

}  // namespace atlasc::python
