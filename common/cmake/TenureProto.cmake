# tenure_proto_library(NAME target PROTOS a.proto ... [ROOT dir] [DEPS targets...] [GRPC])
# Generates into <build>/gen and compiles without warnings; users see the headers as SYSTEM includes.
set(TENURE_GEN_DIR "${PROJECT_BINARY_DIR}/gen")

function(tenure_proto_library)
  cmake_parse_arguments(arg "GRPC" "NAME;ROOT" "PROTOS;DEPS" ${ARGN})
  if(NOT arg_ROOT)
    set(arg_ROOT "${PROJECT_SOURCE_DIR}/proto")
  endif()
  set(sources)
  foreach(proto IN LISTS arg_PROTOS)
    string(REGEX REPLACE "\\.proto$" "" stem "${proto}")
    set(outputs "${TENURE_GEN_DIR}/${stem}.pb.cc" "${TENURE_GEN_DIR}/${stem}.pb.h")
    set(flags --cpp_out=${TENURE_GEN_DIR})
    if(arg_GRPC)
      list(APPEND outputs "${TENURE_GEN_DIR}/${stem}.grpc.pb.cc" "${TENURE_GEN_DIR}/${stem}.grpc.pb.h")
      list(APPEND flags --grpc_out=${TENURE_GEN_DIR} --plugin=protoc-gen-grpc=${TENURE_GRPC_CPP_PLUGIN})
    endif()
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND ${CMAKE_COMMAND} -E make_directory "${TENURE_GEN_DIR}"
      COMMAND ${TENURE_PROTOC} -I "${PROJECT_SOURCE_DIR}/proto" -I "${arg_ROOT}" ${flags} "${arg_ROOT}/${proto}"
      DEPENDS "${arg_ROOT}/${proto}"
      COMMENT "protoc ${proto}"
      VERBATIM)
    foreach(output IN LISTS outputs)
      if(output MATCHES "\\.cc$")
        list(APPEND sources "${output}")
      endif()
    endforeach()
  endforeach()
  add_library(${arg_NAME} STATIC ${sources})
  target_compile_options(${arg_NAME} PRIVATE -w)
  target_include_directories(${arg_NAME} SYSTEM PUBLIC "${TENURE_GEN_DIR}")
  target_link_libraries(${arg_NAME} PUBLIC protobuf::libprotobuf ${arg_DEPS})
  if(arg_GRPC)
    target_link_libraries(${arg_NAME} PUBLIC gRPC::grpc++)
    if(TENURE_PCH)
      target_precompile_headers(${arg_NAME} PRIVATE <grpcpp/grpcpp.h> <google/protobuf/message.h>)
    endif()
  endif()
endfunction()
