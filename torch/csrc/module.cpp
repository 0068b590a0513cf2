// SPDX-License-Identifier: Apache-2.0
/* The Python module: options, the backend's constructor and the functions that c10d does not bind.
 */
#include "backend.hpp"
#include "gloo.hpp"
#include "launch.hpp"
#include "memory.hpp"
#include "recorder.hpp"

#include <cstring>
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/extension.h>

namespace kolo_torch
{

namespace
{

namespace py = pybind11;

Group joined(const c10d::DistributedBackendOptions &group, c10::intrusive_ptr<KoloOptions> options)
{
    options->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(group.timeout);
    options->group_name = group.group_id;
    options->global_ranks_in_group.assign(group.global_ranks_in_group.begin(),
                                          group.global_ranks_in_group.end());
    return {group.store, group.group_rank, group.group_size, std::move(options)};
}

c10::intrusive_ptr<KoloBackend> create(const c10d::DistributedBackendOptions &group,
                                       const c10::intrusive_ptr<KoloOptions> &given,
                                       const c10::intrusive_ptr<KoloBackend> &parent,
                                       const std::vector<int> &members)
{
    const Group its = joined(group, given == nullptr ? c10::make_intrusive<KoloOptions>()
                                                     : c10::make_intrusive<KoloOptions>(*given));
    auto comm = parent != nullptr ? parent->among(members, *its.options) : nullptr;
    return comm != nullptr ? c10::make_intrusive<KoloBackend>(std::move(comm), its)
                           : c10::make_intrusive<KoloBackend>(its);
}

c10::intrusive_ptr<InPlaceOfGloo> createAsGloo(const c10d::DistributedBackendOptions &group)
{
    return c10::make_intrusive<InPlaceOfGloo>(joined(group, c10::make_intrusive<KoloOptions>()));
}

/* isinstance() also asks an object for its __class__. */
PyObject *classOfGloo(PyObject *, void *)
{
    try {
        return py::object(py::module_::import("torch.distributed").attr("ProcessGroupGloo"))
            .release()
            .ptr();
    } catch (py::error_already_set &error) { /* the interpreter may be ending */
        error.restore();
        return nullptr;
    }
}

PyGetSetDef as_gloo[] = {
    {"__class__", classOfGloo, nullptr, "torch.distributed.ProcessGroupGloo", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

void bindInPlaceOfGloo(py::module_ &m)
{
    py::class_<InPlaceOfGloo, KoloBackend, c10::intrusive_ptr<InPlaceOfGloo>>(
        m, "InPlaceOfGloo",
        py::custom_type_setup([](PyHeapTypeObject *type) { type->ht_type.tp_getset = as_gloo; }))
        .def_property_readonly("options", &InPlaceOfGloo::getBackendOptions)
        .def("_set_default_timeout", &InPlaceOfGloo::setTimeout,
             py::call_guard<py::gil_scoped_release>());
    m.def("create_as_gloo", &createAsGloo, py::call_guard<py::gil_scoped_release>());
}

PyObject *argument_error; /* kolo_torch.ArgumentError; lives for ever */

/* Wrong arguments are a ValueError for kolo, and a RuntimeError for gloo and nccl: Python gets an
 * exception that is both. Exceptions of others go on to the translators of torch. */
void translateArgumentError(std::exception_ptr thrown)
{
    try {
        if (thrown) {
            std::rethrow_exception(thrown);
        }
    } catch (const c10::ValueError &error) {
        const char *text = error.what_without_backtrace();
        if (std::string_view(text).substr(0, sizeof "kolo: " - 1) != "kolo: ") {
            throw;
        }
        PyErr_SetString(argument_error, text);
    }
}

void bindArgumentError(py::module_ &m)
{
    const py::tuple bases =
        py::make_tuple(py::handle(PyExc_ValueError), py::handle(PyExc_RuntimeError));
    argument_error = PyErr_NewExceptionWithDoc(
        "kolo_torch.ArgumentError",
        "A wrong argument: a shape, dtype or operation. The process group is unchanged.",
        bases.ptr(), nullptr);
    if (argument_error == nullptr) {
        throw py::error_already_set();
    }
    m.attr("ArgumentError") = py::handle(argument_error);
    py::register_exception_translator(&translateArgumentError);
}

py::list shapes(const std::vector<Recorder::Shape> &all, bool dtypes)
{
    py::list list;
    for (const Recorder::Shape &shape : all) {
        if (dtypes) {
            list.append(c10::toString(shape.dtype));
        } else {
            list.append(std::vector<int64_t>(shape.sizes.begin(), shape.sizes.end()));
        }
    }
    return list;
}

/* The calls as dictionaries with the keys of torch's flight recorder. Keys without a meaning here
 * are left out. */
py::list flightRecord()
{
    static const char *const states[] = {"started", "completed", "failed"};
    using std::chrono::nanoseconds;
    /* The entries have times of a clock that nobody sets; programs see those of the day. */
    const nanoseconds apart = std::chrono::system_clock::now().time_since_epoch() -
                              Recorder::Clock::now().time_since_epoch();
    const auto ns = [apart](Recorder::Clock::time_point t) {
        return std::chrono::duration_cast<nanoseconds>(t.time_since_epoch() + apart).count();
    };
    py::list list;
    for (const Recorder::Entry &e : Recorder::get().entries()) {
        const bool over = e.state != Recorder::State::kStarted;
        const bool message = std::string_view(e.name).find("send") != std::string_view::npos ||
                             std::string_view(e.name).find("recv") != std::string_view::npos;
        py::dict d;
        d["record_id"] = e.id - 1;
        d["process_group"] = py::make_tuple(e.group, e.description);
        d["collective_seq_id"] = e.collective;
        d["p2p_seq_id"] = e.message;
        d["op_id"] = e.id;
        d["profiling_name"] = e.partner < 0
                                  ? std::string(e.name)
                                  : c10::str(e.name, " ", e.rank, e.sends ? "->" : "<-", e.partner);
        d["time_created_ns"] = ns(e.began);
        d["input_sizes"] = shapes(e.inputs, false);
        d["input_dtypes"] = shapes(e.inputs, true);
        d["output_sizes"] = shapes(e.outputs, false);
        d["output_dtypes"] = shapes(e.outputs, true);
        d["state"] = states[static_cast<int>(e.state)];
        d["time_discovered_started_ns"] = ns(e.began);
        d["time_discovered_completed_ns"] = over ? py::object(py::int_(ns(e.ended))) : py::none();
        d["duration_ms"] =
            over ? py::object(py::float_(static_cast<double>(ns(e.ended) - ns(e.began)) / 1e6))
                 : py::none();
        d["time_waited_ns"] = e.waited == Recorder::Clock::time_point()
                                  ? py::object(py::none())
                                  : py::object(py::int_(ns(e.waited)));
        d["retired"] = over;
        d["timeout_ms"] = e.timeout_ms;
        d["is_p2p"] = message;
        list.append(d);
    }
    return list;
}

KoloBackend &own(const c10::intrusive_ptr<c10d::Backend> &backend)
{
    auto *kolo = dynamic_cast<KoloBackend *>(backend.get());
    TORCH_CHECK_VALUE(kolo != nullptr, "the group's backend is ", backend->getBackendName(),
                      ", not kolo");
    return *kolo;
}

void monitoredBarrier(const c10::intrusive_ptr<c10d::Backend> &backend,
                      std::chrono::milliseconds timeout, bool waitAllRanks)
{
    c10d::BarrierOptions options;
    options.timeout = timeout;
    own(backend).monitoredBarrier(options, waitAllRanks);
}

kolo_id idOf(const std::string &bytes)
{
    kolo_id id;
    TORCH_CHECK_VALUE(bytes.size() == sizeof id.bytes, "kolo: an id has ", sizeof id.bytes,
                      " bytes, not ", bytes.size());
    std::memcpy(id.bytes, bytes.data(), sizeof id.bytes);
    return id;
}

py::bytes createId()
{
    kolo_id id;
    check(kolo_id_create(&id), "create_id");
    return {reinterpret_cast<const char *>(id.bytes), sizeof id.bytes};
}

c10::intrusive_ptr<KoloBackend> enter(const c10::intrusive_ptr<c10d::Store> &store,
                                      const std::string &id, int size, int rank,
                                      const KoloOptions &given)
{
    auto options = c10::make_intrusive<KoloOptions>(given);
    auto comm = std::make_shared<Communicator>(idOf(id), size, rank, *options);
    const int my_rank = kolo_comm_rank(comm->get());
    const int its_size = kolo_comm_size(comm->get());
    return c10::make_intrusive<KoloBackend>(std::move(comm),
                                            Group{store, my_rank, its_size, options});
}

/* Groups that change their members. */
void bindChanges(py::module_ &m,
                 py::class_<KoloBackend, c10d::Backend, c10::intrusive_ptr<KoloBackend>> &backend)
{
    backend.def("agree", &KoloBackend::agree, py::call_guard<py::gil_scoped_release>())
        .def(
            "reconfigure",
            [](KoloBackend &self, const c10::intrusive_ptr<c10d::Store> &store,
               const std::string &id, const std::vector<int> &members) {
                return self.reconfigured(store, idOf(id), members);
            },
            py::call_guard<py::gil_scoped_release>());
    m.def("create_id", &createId);
    m.def("enter", &enter, py::call_guard<py::gil_scoped_release>());
}

} // namespace

} // namespace kolo_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    namespace py = pybind11;
    using namespace kolo_torch;
    py::module_::import("torch._C._distributed_c10d"); /* c10d::Backend and its Options */
    py::class_<KoloOptions, c10d::Backend::Options, c10::intrusive_ptr<KoloOptions>>(
        m, "Options",
        "Options of a process group, for init_process_group(pg_options=...).\n\n"
        "deterministic: every algorithm sums in rank order and rounds once.\n"
        "algo: the algorithm for each size, in the form of KOLO_ALGO, e.g. "
        "\"allreduce:0-4k:direct,4k-:ring\".\n"
        "transport: the transport, in the form of KOLO_TRANSPORT, e.g. \"shm\".\n"
        "codec: \"int8\", \"int4\", \"fp8\" or \"bf16\": float32 on the CPU travels compressed in all-reduce "
        "(sum, mean), all-gather and reduce-scatter, where that is faster.\n"
        "kolo chooses the options that are not given.")
        .def(py::init([](std::chrono::milliseconds timeout, bool deterministic, std::string algo,
                         std::string transport, std::string codec) {
                 auto options = c10::make_intrusive<KoloOptions>(timeout);
                 options->deterministic = deterministic;
                 options->algo = std::move(algo);
                 options->transport = std::move(transport);
                 options->codec = std::move(codec);
                 return options;
             }),
             py::arg("timeout") = kBackendDefaultTimeout, py::kw_only(),
             py::arg("deterministic") = false, py::arg("algo") = "", py::arg("transport") = "",
             py::arg("codec") = "")
        .def_readwrite("deterministic", &KoloOptions::deterministic)
        .def_readwrite("algo", &KoloOptions::algo)
        .def_readwrite("transport", &KoloOptions::transport)
        .def_readwrite("codec", &KoloOptions::codec)
        .def("__copy__", [](const KoloOptions &o) { return c10::make_intrusive<KoloOptions>(o); })
        .def("__deepcopy__", [](const KoloOptions &o, const py::dict &) {
            return c10::make_intrusive<KoloOptions>(o);
        });
    py::class_<KoloBackend, c10d::Backend, c10::intrusive_ptr<KoloBackend>> backend(m,
                                                                                    "KoloBackend");
    backend
        .def_property_readonly("options",
                               [](KoloBackend &backend) {
                                   return c10::static_intrusive_pointer_cast<KoloOptions>(
                                       backend.getBackendOptions());
                               })
        .def("raise_failure", &KoloBackend::raiseFailure, py::call_guard<py::gil_scoped_release>());
    bindChanges(m, backend);
    bindInPlaceOfGloo(m);
    bindArgumentError(m);
    m.def(
        "meet_at_launch",
        [](const std::function<std::string(int)> &card, std::chrono::milliseconds timeout) {
            const Launch launch = meetAtLaunch(card, timeout);
            return std::make_pair(launch.rank, launch.cards);
        },
        py::call_guard<py::gil_scoped_release>());
    m.def("flight_record", &flightRecord);
    m.def("create", &create, py::call_guard<py::gil_scoped_release>());
    m.def("monitored_barrier", &monitoredBarrier, py::call_guard<py::gil_scoped_release>());
    m.def("empty_shared", [](const std::vector<int64_t> &sizes, const py::object &dtype) {
        return emptyShared(sizes, reinterpret_cast<THPDtype *>(dtype.ptr())->scalar_type);
    });
    m.def("use_shared_memory", &useSharedMemory);
    m.def("library_version", &kolo_version);
    kolo_warn_with(&warn);
}
